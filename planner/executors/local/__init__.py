"""Executor for one host with GPUs: a queue of commands, each under a supervisor of its own."""
