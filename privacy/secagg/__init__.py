"""Secure sums: a server learns the sum of the sites' updates and no summand (masks, after Bonawitz 2017, Bell 2020).

Pure state machines: ``site`` answers the server's messages, ``collect`` gathers the sites'. Neither opens a socket,
reads a clock or touches a file.
"""
