"""The functions of generated reproducers, as they appear in them. Nothing of kvproof imports this
folder: `assembly` reads its files as text.

A reproducer gets only the functions that it uses, with 88 characters in a line. A line that ends
with `#@ feature` appears only where the run has this feature, and one that ends with `#@ -feature`
only where it does not.
"""
