"""One self-contained HTML file that shows what a run found, and what people made of it."""

from flawsort.outputs.report.page import render_report
from flawsort.outputs.report.reviewed import read_reviewed, render_printed

__all__ = ["read_reviewed", "render_printed", "render_report"]
