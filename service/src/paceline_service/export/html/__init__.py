"""A report as one HTML file that needs nothing but a browser (docs/report-html.md)."""

from paceline_service.export.html.page import html_report
from paceline_service.export.html.story import Story

__all__ = ["Story", "html_report"]
