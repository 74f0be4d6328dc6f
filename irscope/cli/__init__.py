"""The command line: one module a command, imported only when it is the one that was asked for."""
