"""Questions to the records of many sites, answered from one secure sum of short vectors of whole numbers.

Pure: a ``Query`` says how a site's records become counters, and how the sum of everybody's becomes the answer.
"""
