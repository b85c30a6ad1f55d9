#!/usr/bin/env python3
"""verify and gc over many small blobs, and verify over large ones beside sha256sum.

    tests/bench/blobs.py BINARY small [COUNT] [--limit-mib N]   COUNT blobs (200,000), half of which nothing names
    tests/bench/blobs.py BINARY large [MIB]                     MIB of wheels (2,048) in 16 files

`small` runs verify and gc under a limit of their address space for data (RLIMIT_DATA), and prints time and peak RSS.
`large` prints how fast verify is as a part of `xargs -P2 sha256sum` over the same files; rounds alternate, the median counts.
"""
import argparse, hashlib, json, os, pathlib, resource, statistics, subprocess, tempfile, time

MEMBER = b"Metadata-Version: 2.1\nName: demo\n"


def blob(data, content, number, held=True):
    digest = hashlib.sha256(content).hexdigest()
    folder = data / "blobs/sha256" / digest[:2]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / (digest + ".whl")).write_bytes(content)
    if not held:
        return
    file = "demo-1.%d-py3-none-any.whl" % number
    seen = {"upstream": "local", "url": file, "first_seen": "2026-11-30T00:00:00Z"}
    facts = {"file": file, "sha256": digest, "size": len(content), "project": "demo-%d" % (number % 500), "version": "1.%d" % number,
             "tags": ["py3-none-any"], "requires_dist": [], "metadata_sha256": hashlib.sha256(MEMBER).hexdigest(), "gpu": "none",
             "members": [], "compilers": [], "images": {}, "damage": []}
    entry = {"facts": facts, "provenance": seen, "sightings": [dict(seen, pinned=True, first_at_url=True)]}
    rest = json.dumps({"held": True, "files": [entry]}, separators=(",", ":"))[1:]
    head = '{"format":1,"checksum":"%s",' % hashlib.sha256(rest.encode()).hexdigest()
    (folder / (digest + ".json")).write_text(head + rest + "\n")
    (folder / (digest + ".metadata")).write_bytes(MEMBER)


def run(command, limit=None, **more):
    """Wall and CPU seconds, peak RSS in MiB, and what was printed."""
    def limits():
        if limit:
            resource.setrlimit(resource.RLIMIT_DATA, (limit << 20, limit << 20))
    begin = time.monotonic()
    child = subprocess.Popen(command, stdout=subprocess.PIPE, preexec_fn=limits, **more)
    said = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    code = os.waitstatus_to_exitcode(status)
    return time.monotonic() - begin, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, said, code


def small(binary, folder, count, limit):
    data = folder / "data"
    subprocess.run([binary, "--data", data, "snapshot", "list"], stdout=subprocess.DEVNULL, check=True)
    for number in range(count):
        blob(data, b"%d" % number, number, held=number % 2 == 0)
    subprocess.run([binary, "--data", data, "rebuild"], stdout=subprocess.DEVNULL, check=True)
    subprocess.run([binary, "--data", data, "snapshot", "create"], stdout=subprocess.DEVNULL, check=True)
    for words in (["verify"], ["gc"], ["gc", "--older-than", "0s"], ["verify"]):
        wall, cpu, peak, said, code = run([binary, "--data", data, *words, "--format", "json"], limit, stderr=subprocess.DEVNULL)
        report = json.loads(said)
        told = {key: report[key] for key in ("blobs", "sidecars", "younger") if key in report}
        told.update({key: len(report[key]) for key in ("orphans", "findings") if key in report})
        print("%d blobs, %s: exit %d, %.1f s, %.1f s of CPU, peak RSS %.0f MiB, %s" % (count, " ".join(words), code, wall, cpu, peak, told))
        assert code == 0
    left = sum(1 for path in (data / "blobs").rglob("*.whl"))
    assert left == count - count // 2, left


def large(binary, folder, mib):
    data = folder / "data"
    subprocess.run([binary, "--data", data, "snapshot", "list"], stdout=subprocess.DEVNULL, check=True)
    for number in range(16):
        blob(data, os.urandom(mib * (1 << 20) // 16), number)
    subprocess.run([binary, "--data", data, "rebuild"], stdout=subprocess.DEVNULL, check=True)
    paths = sorted(str(path) for path in (data / "blobs").rglob("*.whl"))
    (folder / "list").write_text("\n".join(paths))
    peer = "xargs -P2 -n1 sha256sum < %s" % (folder / "list")
    ratios, peaks, cpus = [], [], []
    for _ in range(7):
        theirs = run(["sh", "-c", peer])
        ours = run([binary, "--data", data, "verify"], stderr=subprocess.DEVNULL)
        assert ours[4] == 0, ours
        ratios.append(theirs[0] / ours[0]), peaks.append(ours[2]), cpus.append((ours[1], theirs[1]))
        print("sha256sum %.2f s (%.2f s of CPU), verify %.2f s (%.2f s of CPU)" % (*theirs[:2], *ours[:2]))
    print("verify at %.2f of the speed of sha256sum on two processes, peak RSS %.0f MiB" % (statistics.median(ratios), max(peaks)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("kind", choices=("small", "large"))
    parser.add_argument("amount", type=int, nargs="?")
    parser.add_argument("--limit-mib", type=int, default=256)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        if asked.kind == "small":
            small(asked.binary, pathlib.Path(name), asked.amount or 200_000, asked.limit_mib)
        else:
            large(asked.binary, pathlib.Path(name), asked.amount or 2048)
