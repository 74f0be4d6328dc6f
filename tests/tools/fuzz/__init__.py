"""Mutants of every kind of file irscope reads: `python -m tests.tools.fuzz --minutes 10`, or `make fuzz MINUTES=10`.

A file is taken apart into a tree (`trees`), a few places of the tree change (`mutants`), and the command line runs over what comes out
(`check`). Workers run many mutants in one process, beside a process that watches them (`worker`, `watch`); what is found is made small
(`shrink`) and kept in .fuzz/, with the number of the next mutant, so that the next run goes on from there.
"""
