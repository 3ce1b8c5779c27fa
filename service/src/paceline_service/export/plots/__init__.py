"""Plots of the models: drawn once, written as SVG inside one HTML file, or as PNG."""

from paceline_service.export.plots.bars import Bar, bars
from paceline_service.export.plots.chart import Line, Mark, plot
from paceline_service.export.plots.drawing import Drawing
from paceline_service.export.plots.lanes import Lane, Span, lanes
from paceline_service.export.plots.page import Section, page
from paceline_service.export.plots.svg import svg

__all__ = [
    "Bar", "Drawing", "Lane", "Line", "Mark", "Section", "Span", "bars", "lanes", "page",
    "plot", "svg",
]  # fmt: skip
