"""The one name that workspace.yaml loads."""

from pocket_ingest.orchestration.build import build_defs

defs = build_defs()
