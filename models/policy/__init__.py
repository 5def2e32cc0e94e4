"""The policy file: settings of the operator."""
