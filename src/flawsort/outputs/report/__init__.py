"""One self-contained HTML file that shows what a run found."""

from flawsort.outputs.report.page import render_report

__all__ = ["render_report"]
