"""What all benchmarks share: arguments, the machine, the result file, the plot."""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import platform
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent.parent / "examples" / "data"


def arguments(description: str, **extra: dict[str, Any]) -> argparse.Namespace:
    """Parse the arguments that every benchmark takes, and a benchmark's own."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="under 8 minutes on 2 cores")
    parser.add_argument("--json", type=Path, help="where to write the results")
    parser.add_argument(
        "--plot", type=Path, help="where to write the plot (default: beside --json)"
    )
    parser.add_argument("--data", type=Path, default=DATA, help="folder with the input tables")
    parser.add_argument("--model", help="as in semops.configure; default: that of the hardware")
    for name, options in extra.items():
        parser.add_argument(f"--{name}", **options)
    return parser.parse_args()


def machine() -> dict[str, Any]:
    """Describe the machine and the day, to stand beside each figure."""
    model = ""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = cpuinfo.read_text().splitlines()
        model = next((line.split(":", 1)[1].strip() for line in lines if "model name" in line), "")
    return {
        "cpu": model or platform.processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "system": platform.platform(),
        "date": dt.datetime.now(tz=dt.UTC).date().isoformat(),
    }


def report(
    args: argparse.Namespace,
    name: str,
    results: list[dict[str, Any]],
    summary: dict[str, float],
) -> None:
    """Print the results and write them where asked."""
    for row in results:
        print("  ".join(f"{key}={_short(value)}" for key, value in row.items()))
    width = max(map(len, summary))
    print(f"\n{name}")
    for metric, value in summary.items():
        print(f"  {metric:<{width}}  {value:.3f}")
    document = {"benchmark": name, "machine": machine(), "results": results, "summary": summary}
    if args.json is not None:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(document, indent=2) + "\n")


def plot_path(args: argparse.Namespace) -> Path | None:
    """Return where the plot goes, or None."""
    if args.plot is not None:
        return Path(args.plot)
    return args.json.with_suffix(".png") if args.json is not None else None


def bars(
    path: Path | None, title: str, groups: list[str], series: dict[str, list[float]], unit: str
) -> None:
    """Draw grouped bars; without matplotlib say so and go on."""
    if path is None:
        return
    try:
        import matplotlib as mpl

        mpl.use("Agg")
        from matplotlib import pyplot as plt
    except ImportError:
        print("no plot: pip install 'kalypso-semops[bench]' brings matplotlib")
        return
    figure, axes = plt.subplots(figsize=(7, 4))
    width = 0.8 / len(series)
    for position, (label, values) in enumerate(series.items()):
        places = [index + position * width for index in range(len(groups))]
        axes.bar(places, values, width, label=label)
    axes.set_xticks([index + 0.4 - width / 2 for index in range(len(groups))], groups)
    axes.set_ylabel(unit)
    axes.set_title(title)
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def _short(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
