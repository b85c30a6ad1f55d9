#!/usr/bin/env python3
"""What `jetwheel inspect` costs on real wheels, beside what it cannot do without and beside the usual way. One run prints
the ratios; CPU seconds and memory hold on a busy machine, wall times do not.

  tests/bench/inspecting.py WHEEL... [--rounds 3] [--cores 0,1] [--jetwheel PATH] [--cuobjdump PATH] [--no-cuobjdump]

- bound: inflating the same members with the same zlib (tests/bench/inflate), and sha256sum of the file
- usual: unzip to disk, and `cuobjdump --list-elf --list-ptx` of each library
Builds what it needs with cargo; the Python index has cuobjdump (x86-64), which goes into target/clients/cuobjdump.
"""
import argparse, glob, os, pathlib, shutil, subprocess, sys, tempfile, zipfile

from cost import Cost, median, run

ROOT = pathlib.Path(__file__).resolve().parents[2]
CARGO = os.environ.get("CARGO", "cargo")
GOALS = [("CPU: inspect / (inflate + sha256sum)", "<=", 1.35), ("memory: inspect, MiB of anonymous memory", "<=", 64),
         ("CPU: (unzip + cuobjdump) / inspect", ">=", 2), ("memory: cuobjdump / inspect", ">=", 30),
         ("wall: one core / two cores", ">", 1)]


def build(jetwheel):
    for folder in (*(() if jetwheel else (ROOT,)), ROOT / "tests/bench/inflate"):
        subprocess.run([CARGO, "build", "--release", "--locked", "-q"], cwd=folder, check=True)
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    bound = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "tests/bench/inflate/target"))
    return jetwheel or target / "release/jetwheel", bound / "release/inflate"


def find_cuobjdump():
    home = ROOT / "target/clients/cuobjdump"
    find = lambda: next(iter(glob.glob(str(home / "lib/*/site-packages/nvidia/*/bin/cuobjdump"))), None)
    if not find():
        subprocess.run([sys.executable, "-m", "venv", home], check=True)
        subprocess.run([home / "bin/python", "-m", "pip", "install", "-q", "nvidia-cuda-cuobjdump"], check=True)
    return find()


def usual(wheel, cuobjdump, cores):
    """unzip, then cuobjdump on each ELF file of the wheel."""
    folder = tempfile.mkdtemp(prefix="bench-inspect-")
    try:
        total = run(["unzip", "-q", wheel, "-d", folder], cores)
        peak = 0.0
        for name in zipfile.ZipFile(wheel).namelist():
            path = os.path.join(folder, name)
            if os.path.isfile(path) and open(path, "rb").read(4) == b"\x7fELF":
                # it ends with 255 where a file holds no device code
                cost = run([cuobjdump, "--list-elf", "--list-ptx", path], cores, ok=range(-15, 256))
                peak = max(peak, cost.rss)
                total += cost
        return total, peak
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def table(rows, head):
    widths = [max(len(str(r[i])) for r in [head, *rows]) for i in range(len(head))]
    for r in [head, *rows]:
        print("  ".join(str(c).ljust(w) if i == 0 else str(c).rjust(w) for i, (c, w) in enumerate(zip(r, widths))))
    print()


def measure(wheel, o, jetwheel, inflate):
    one, two = o.cores.split(",")[0], o.cores
    ours = [str(jetwheel), "inspect", "--format", "json", wheel]
    cells = {k: [] for k in ("inflate", "sha256sum", "inspect, one core", "inspect, two cores")}
    subprocess.run(["cat", wheel], stdout=subprocess.DEVNULL, check=True)               # into the page cache
    for _ in range(o.rounds):
        cells["inflate"].append(run([inflate, wheel], one))
        cells["sha256sum"].append(run(["sha256sum", wheel], one))
        cells["inspect, one core"].append(run(ours, one))
        cells["inspect, two cores"].append(run(ours, two))
    cost = {k: median(v) for k, v in cells.items()}
    peak = None
    if o.cuobjdump:
        cost["unzip + cuobjdump"], peak = usual(wheel, o.cuobjdump, two)
    archive = zipfile.ZipFile(wheel)
    raw = sum(i.file_size for i in archive.infolist())
    print("%s: %.1f MB, %.1f MB inflated, %d members" % (os.path.basename(wheel), os.path.getsize(wheel) / 1e6, raw / 1e6,
                                                         len(archive.infolist())))
    table([(k, "%.2f" % c.cpu, "%.2f" % c.wall, "%.1f" % c.rss, "%.1f" % c.anon, "%.0f" % (raw / 1e6 / c.wall))
           for k, c in cost.items()], ("", "CPU s", "wall s", "RSS MiB", "anonymous MiB", "MB/s inflated"))
    inspect = cost["inspect, two cores"]
    bound = cost["inflate"] + cost["sha256sum"]
    usual_cost = cost.get("unzip + cuobjdump")
    memory = min(inspect.rss, inspect.anon) if inspect.anon else inspect.rss
    found = [inspect.cpu / bound.cpu, memory, usual_cost and usual_cost.cpu / inspect.cpu, peak and peak / memory,
             cost["inspect, one core"].wall / inspect.wall]
    rows, good = [], True
    for (what, sign, goal), value in zip(GOALS, found):
        if value is None:
            rows.append((what, "-", "%s %s" % (sign, goal), "not measured"))
            continue
        holds = value <= goal if sign == "<=" else value > goal if sign == ">" else value >= goal
        good &= holds
        rows.append((what, "%.2f" % value, "%s %s" % (sign, goal), "yes" if holds else "NO"))
    table(rows, ("", "found", "goal", "holds"))
    return good


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("wheels", nargs="+")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--cores", default="0,1", help="two cores, by number")
    p.add_argument("--cuobjdump", help="its path; default: from the Python index")
    p.add_argument("--jetwheel", help="a built binary; default: cargo builds one")
    p.add_argument("--no-cuobjdump", action="store_true")
    o = p.parse_args()
    for tool in ("taskset", "unzip", "sha256sum"):
        if not shutil.which(tool):
            sys.exit("inspecting.py needs %s" % tool)
    o.cuobjdump = None if o.no_cuobjdump else o.cuobjdump or find_cuobjdump()
    sys.stdout.reconfigure(line_buffering=True)
    jetwheel, inflate = build(o.jetwheel)
    good = [measure(os.path.abspath(w), o, jetwheel, inflate) for w in o.wheels]
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
