"""Which packages are watched for coverage, by target; read before any of them is imported."""

PACKAGES = {
    "frames": ("paceline.wire", "paceline_service.ingest", "paceline_service.jobs",
               "paceline_service.analysis", "paceline.ranks"),
    "ring": ("paceline.ring", "paceline.sidecar", "paceline.wire", "paceline.ranks"),
    "events": ("paceline_service.importers", "paceline.event_log", "paceline.ranks",
               "paceline_service.analysis"),
    "kineto": ("paceline_service.importers", "paceline_service.analysis"),
    "dumps": ("paceline_service.importers", "paceline.ranks",
              "paceline_service.analysis.standstill"),
    "parquet": ("paceline_service.importers",),
}  # fmt: skip
