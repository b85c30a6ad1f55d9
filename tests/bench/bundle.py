#!/usr/bin/env python3
"""How fast `jetwheel export` and `jetwheel import` are beside `cp` and `sha256sum` of the same wheels, and how much memory they
take. One run prints the ratios; every measure starts with the wheels in the page cache and nothing left to be written.

  tests/bench/bundle.py [WHEEL...] [--device ID] [--dir DIR] [--rounds 3] [--sync] [--jetwheel PATH]

- WHEEL: what is carried; without any, torch and cuBLAS for aarch64 (some 950 MB) are fetched by pip
- --dir: where all is written, the system's temporary folder by default; /dev/shm leaves the disk out
- --sync: `sync` of what cp wrote counts too, since both commands write durably
Both are signed, and so read the bundle twice. All files are removed at the end.
"""
import argparse, os, pathlib, shutil, subprocess, sys, tempfile

from cost import median, run

ROOT = pathlib.Path(__file__).resolve().parents[2]
CARGO = os.environ.get("CARGO", "cargo")
WHEELS = ["torch==2.11.0", "nvidia-cublas==13.1.0.3"]
PLATFORMS = ["manylinux_2_28_aarch64", "manylinux_2_27_aarch64", "manylinux_2_17_aarch64", "manylinux2014_aarch64"]
LEAST_SPEED, MOST_MIB = 0.6, 100


def fetch(folder):
    """Fetches the wheels by the pip of ./ci.sh, or that of the system."""
    pip = ROOT / "target/clients/pip-newest/bin/python"
    command = [str(pip) if pip.exists() else sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:",
               "--python-version", "3.12", "--implementation", "cp", "-d", str(folder), *WHEELS]
    for platform in PLATFORMS:
        command += ["--platform", platform]
    subprocess.run(command, check=True)
    return sorted(folder.glob("*.whl"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheels", nargs="*", type=pathlib.Path)
    parser.add_argument("--device", default="thor-jp7.2")
    parser.add_argument("--dir")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sync", action="store_true")
    parser.add_argument("--jetwheel", type=pathlib.Path)
    options = parser.parse_args()
    jetwheel = options.jetwheel or ROOT / "target/release/jetwheel"
    if not options.jetwheel:
        subprocess.run([CARGO, "build", "--release", "--quiet"], cwd=ROOT, check=True)
    with tempfile.TemporaryDirectory(dir=options.dir, prefix="jetwheel-bench-") as folder:
        folder = pathlib.Path(folder)
        given = options.wheels or fetch(folder)
        wheels = [pathlib.Path(shutil.copy(wheel, folder / wheel.name)) if wheel.parent != folder else wheel for wheel in given]
        size = sum(wheel.stat().st_size for wheel in wheels)
        key, site = folder / "key", [jetwheel, "--data", folder / "a"]
        run([*site, "export", "--make-key", key])
        run([*site, "add", *wheels])
        costs = {"cp": [], "sha256sum": [], "export": [], "import": []}
        for number in range(options.rounds):
            copy, bundle, other = folder / "copy", folder / "bundle.jwb", folder / "b"
            copy.mkdir()
            subprocess.run(["sync"], check=True)
            after = ["sync", "-f", str(copy)] if options.sync else ["true"]
            costs["cp"].append(run(["sh", "-c", 'cp -- "$@" && ' + " ".join(after), "cp", *wheels, copy]))
            costs["sha256sum"].append(run(["sha256sum", *wheels]))
            shutil.rmtree(copy)
            subprocess.run(["sync"], check=True)
            costs["export"].append(run([*site, "export", "--device", options.device, "--output", bundle, "--key", key]))
            subprocess.run(["sync"], check=True)
            public = key.with_name("key.pub")
            costs["import"].append(run([jetwheel, "--data", other, "import", bundle, "--public-key", public]))
            held = sum(path.stat().st_size for path in other.rglob("*.whl"))
            if held != size:
                sys.exit("%d bytes came over of %d: does --device %s list these wheels?" % (held, size, options.device))
            shutil.rmtree(other)
            for path in folder.glob("bundle.jwb*"):
                path.unlink()
        print("%d wheels, %d bytes, in %s; medians of %d rounds" % (len(wheels), size, folder.parent, options.rounds))
        medians = {name: median(rounds) for name, rounds in costs.items()}
        for name, cost in medians.items():
            print("  %-10s %6.2f s  %7.1f MB/s  CPU %6.2f s  peak RSS %6.1f MiB"
                  % (name, cost.wall, size / cost.wall / 1e6, cost.cpu, cost.rss))
        bound, bad = medians["cp"].wall + medians["sha256sum"].wall, False
        for name in ("export", "import"):
            ratio, peak = bound / medians[name].wall, medians[name].rss
            good = ratio >= LEAST_SPEED and peak <= MOST_MIB
            bad |= not good
            print("  %s: %.2f of the speed of cp plus sha256sum (>= %.1f), peak RSS %.1f MiB (<= %d): %s"
                  % (name, ratio, LEAST_SPEED, peak, MOST_MIB, "holds" if good else "MISSED"))
        sys.exit(bad)


main()
