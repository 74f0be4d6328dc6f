"""Audits: every model of folders, hub caches, archives and object stores analysed into one dataset.

`sources` lists models, `worker` analyses one in a process with limits, `engines` has such processes on this machine or on a cluster's,
`dataset` keeps what they found, `run` joins them, `questions` reads a dataset again.
"""
