#!/usr/bin/env python3
"""Runs real GPU work with the installed PyTorch, compares it with the CPU's results, and reports to the mirror.

usage: check.py [--output FILE] [--no-report]

Every check prints a line: pass, fail or skip, the largest error relative to the CPU's result, and the time.
Exit code: 0 all checks passed, 1 one failed, 2 PyTorch cannot be imported.
"""
import argparse
import hashlib
import json
import os
import platform
import sys
import time
import urllib.request

DEVICE = "@DEVICE@"
REPORTS = "@REPORTS@"
PROJECTS = ("torch", "torchvision", "torchaudio", "triton", "numpy", "nvidia-cublas", "nvidia-cublas-cu12",
            "nvidia-cudnn-cu12", "nvidia-cudnn-cu13")


def unit():
    """A name that tells this device from others, and nothing else of it: a digest of its machine id."""
    for path in ("/etc/machine-id", "/var/lib/dbus/machine-id"):
        try:
            with open(path, "rb") as file:
                text = file.read().strip()
        except (IOError, OSError):
            continue
        if text:
            return hashlib.sha256(b"jetwheel check " + text).hexdigest()[:16]
    return None


def described(name):
    """Version and .dist-info folder of an installed project; fails where there is none."""
    try:
        from importlib.metadata import distribution
    except ImportError:                                  # Python 3.6 of JetPack 4
        from pkg_resources import get_distribution
        found = get_distribution(name)
        return found.version, found.egg_info
    found = distribution(name)
    return found.version, getattr(found, "_path", None)


def installed():
    """Name, version and METADATA digest of the installed projects that matter; the digest names the wheel."""
    rows = []
    for name in PROJECTS:
        try:
            version, folder = described(name)
        except Exception:                                # whatever is wrong with it, it is not there
            continue
        try:
            with open(os.path.join(str(folder), "METADATA"), "rb") as file:
                digest = hashlib.sha256(file.read()).hexdigest()
        except (IOError, OSError):                       # not from a wheel
            digest = None
        rows.append({"name": name, "version": version, "metadata_sha256": digest})
    return rows


def relative_error(found, wanted):
    found, wanted = found.detach().float().cpu(), wanted.detach().float().cpu()
    scale = wanted.abs().max().item() or 1.0
    return (found - wanted).abs().max().item() / scale


class Checks:
    def __init__(self, torch, device):
        self.torch, self.device, self.rows = torch, device, []

    def run(self, name, limit, work):
        """work() yields (found, wanted) tensors; the check passes if their relative error is within the limit."""
        began, row = time.monotonic(), {"name": name, "limit": limit}
        try:
            found, wanted = work()
            if self.device != "cpu":
                self.torch.cuda.synchronize()
            row["error"] = relative_error(found, wanted)
            row["status"] = "pass" if row["error"] <= limit else "fail"
            if row["error"] != row["error"]:
                row["status"], row["error"] = "fail", None
                row["text"] = "the result holds NaN"
        except Exception as error:                       # any failure of the library is what is asked for here
            row["status"], row["text"] = "fail", "%s: %s" % (type(error).__name__, str(error)[:500])
        row["seconds"] = round(time.monotonic() - began, 4)
        self.add(row)

    def skip(self, name, why):
        self.add({"name": name, "status": "skip", "text": why, "seconds": 0.0})

    def add(self, row):
        self.rows.append(row)
        error = "" if row.get("error") is None else "error %.2e (limit %.0e)" % (row["error"], row["limit"])
        print("%-28s %-5s %8.3f s  %s%s" % (row["name"], row["status"], row["seconds"], error, row.get("text", "")))


def gemm(torch, device, dtype, size):
    a, b = (torch.randn(size, size, generator=torch.Generator().manual_seed(seed)) for seed in (1, 2))
    return a.to(device, dtype) @ b.to(device, dtype), a.to(dtype).double() @ b.to(dtype).double()


def tf32(torch, device, size):
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        return gemm(torch, device, torch.float32, size)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def convolution(torch, device):
    seed = torch.Generator().manual_seed(3)
    image, kernel = torch.randn(4, 16, 64, 64, generator=seed), torch.randn(32, 16, 3, 3, generator=seed)
    return (torch.nn.functional.conv2d(image.to(device), kernel.to(device), padding=1),
            torch.nn.functional.conv2d(image, kernel, padding=1))


def nms(torch, device):
    from torchvision.ops import nms as kept
    seed = torch.Generator().manual_seed(4)
    corner, extent, score = (torch.rand(*shape, generator=seed) for shape in ((500, 2), (500, 2), (500,)))
    boxes = torch.cat([corner * 100, corner * 100 + extent * 20 + 1], dim=1)
    return kept(boxes.to(device), score.to(device), 0.5), kept(boxes, score, 0.5)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", metavar="FILE", help="write the report there too")
    parser.add_argument("--no-report", action="store_true", help="do not send the report to the mirror")
    arguments = parser.parse_args()
    try:
        import torch
    except Exception as error:
        print("PyTorch cannot be imported: %s" % error, file=sys.stderr)
        return 2
    gpu = torch.cuda.is_available()
    device = "cuda" if gpu else "cpu"
    report = {"device": DEVICE, "machine": platform.machine(), "python": platform.python_version(),
              "kernel": platform.release(), "torch": torch.__version__, "torch_cuda": torch.version.cuda,
              "unit": unit(), "gpu": None, "wheels": installed()}
    if gpu:
        major, minor = torch.cuda.get_device_capability()
        report["gpu"] = {"name": torch.cuda.get_device_name(), "compute_capability": "%d.%d" % (major, minor),
                         "built_for": torch.cuda.get_arch_list()}
        print("%s, compute capability %d.%d, torch %s (CUDA %s)"
              % (report["gpu"]["name"], major, minor, torch.__version__, torch.version.cuda))
    else:
        print("no GPU is visible: torch %s (CUDA %s) computes on the CPU; this report is marked so"
              % (torch.__version__, torch.version.cuda))

    checks = Checks(torch, device)
    torch.manual_seed(0)
    checks.run("matmul float32", 1e-5, lambda: gemm(torch, device, torch.float32, 256))
    checks.run("convolution float32", 1e-3, lambda: convolution(torch, device))
    if gpu:
        checks.run("gemm tf32", 5e-3, lambda: tf32(torch, device, 1024))
        checks.run("gemm float16", 5e-3, lambda: gemm(torch, device, torch.float16, 1024))
    else:                                                # TF32 is the GPU's own; float16 is not in each CPU build
        checks.run("gemm float32", 1e-4, lambda: gemm(torch, device, torch.float32, 1024))
        checks.run("gemm bfloat16", 1e-2, lambda: gemm(torch, device, torch.bfloat16, 1024))
    try:
        import torchvision
        report["torchvision"] = torchvision.__version__
    except Exception as error:
        checks.skip("torchvision.ops.nms", "torchvision cannot be imported: %s" % str(error)[:200])
    else:
        checks.run("torchvision.ops.nms", 0.0, lambda: nms(torch, device))

    report["checks"] = checks.rows
    report["passed"] = all(row["status"] != "fail" for row in checks.rows)
    body = json.dumps(report, indent=1).encode()
    if arguments.output:
        with open(arguments.output, "wb") as file:
            file.write(body + b"\n")
    if not arguments.no_report:
        request = urllib.request.Request(REPORTS, body, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                print(answer.read(2000).decode("utf-8", "replace").strip())
        except OSError as error:
            print("the report did not reach the mirror: %s" % error, file=sys.stderr)
    print("passed" if report["passed"] else "FAILED")
    return 0 if report["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
