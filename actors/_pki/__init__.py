"""Keys, certificate requests and what is in a certificate: `pki`, which has a child process do it.

The library that knows X.509 takes 14 MB of memory and is needed some times a year, so no actor ever loads it.
"""
