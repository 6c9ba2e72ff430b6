"""Methods of other libraries, one file each.

They are imported, and their libraries, only when they are used.
"""
