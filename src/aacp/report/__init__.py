"""One self-contained page from run folders: what was asked, what was found, what it is worth."""
