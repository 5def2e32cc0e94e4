"""What-if: hypothetical worlds (snapshot and policy with changes), planned and compared with the base."""
