"""Methods of other libraries, one file each; they are imported, and their libraries, only when they are used."""
