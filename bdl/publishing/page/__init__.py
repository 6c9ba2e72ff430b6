"""One HTML file of everything that is known of a run."""

from bdl.publishing.page.writing import write_page

__all__ = ["write_page"]
