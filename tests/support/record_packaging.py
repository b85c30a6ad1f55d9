#!/usr/bin/env python3
"""Records what the `packaging` library says of wheel file names and supported tags, as tests/data/packaging.json.

usage: record_packaging.py > tests/data/packaging.json      (needs `packaging` 26.4 or later)
"""
import json, pathlib, sys
import packaging
from packaging import tags, utils

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "data" / "golden"
NAMES = [p.name[:-5] + ".whl" for p in sorted(GOLDEN.glob("*.json"))] + [
    "torch-2.5.0a0+872d972e41.nv24.08.17622132-cp310-cp310-linux_aarch64.whl",
    "torch-2.8.0-cp310-cp310-linux_aarch64.whl",
    "onnxruntime_gpu-1.23.0-cp310-cp310-linux_aarch64.whl",
    "demo-1.0-1-py3-none-any.whl", "demo-1.0-1a-py3-none-any.whl", "demo-1.0-001_x-py3-none-any.whl",
    "demo-1!2.0.post1.dev3+local.7-py2.py3-none-any.whl", "Demo.Pkg-1.0-py3-none-any.whl", "demo_pkg-1.0-py3-none-any.whl",
    "demo-v1.0-py3-none-any.whl", "demo-1.0_post1-py3-none-any.whl", "demo-1.0+cu_126-py3-none-any.whl", "demo-1.0.RC1-py3-none-any.whl",
    "demo-1.0-CP310-CP310-Linux_aarch64.whl", "demo-1.0-cp37.cp38-abi3-manylinux1_x86_64.manylinux_2_5_x86_64.whl",
    "demo-1.0-py3-none-any.WHL", "demo-1.0-py3-none-any.tar.gz", "demo-1.0-py3-none.whl", "demo-1.0-1-2-py3-none-any.whl",
    "demo__x-1.0-py3-none-any.whl", "-1.0-py3-none-any.whl", "demo-x-py3-none-any.whl", "demo-1.0-x-py3-none-any.whl",
    "demo-1.0-py3..py2-none-any.whl", "demo-1.0-py3-none-.whl", "demo-1.0--none-any.whl", "demo-1.0-3py-none-any.whl", "demo+x-1.0-py3-none-any.whl",
    "demo-1.0-cp310-cp310-linux_aarch64.whl.metadata", ".whl", "",
]


def read(name):
    try:
        project, version, build, tag_set = utils.parse_wheel_filename(name)
    except utils.InvalidWheelFilename as e:
        return {"file": name, "error": str(e)}
    return {"file": name, "project": project, "version": str(version), "build": list(build), "tags": sorted(map(str, tag_set))}


def manylinux(newest):
    out = []
    for minor in range(newest, 16, -1):
        out.append("manylinux_2_%d_aarch64" % minor)
        out += ["manylinux2014_aarch64"] if minor == 17 else []
    return out + ["linux_aarch64"]


def supported(python, newest):
    platforms = manylinux(newest)
    digits = "%d%d" % python
    abi = "cp" + digits + ("m" if python < (3, 8) else "")
    listed = [*tags.cpython_tags(python, [abi], platforms), *tags.compatible_tags(python, "cp" + digits, platforms)]
    return {"python": list(python), "platforms": platforms, "tags": list(dict.fromkeys(map(str, listed)))}


json.dump({"packaging": packaging.__version__, "names": [read(n) for n in NAMES],
           "supported": [supported((3, 6), 27), supported((3, 8), 31), supported((3, 10), 35), supported((3, 12), 39)]},
          sys.stdout, separators=(",", ":"))
print()
