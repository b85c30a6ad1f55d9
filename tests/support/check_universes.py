"""Checks recorded universes with the `packaging` library: python3 check_universes.py FILE.

FILE is JSON: a list of {"wheels": {project: {version: [requirement, ...]}}, "asked": [requirement, ...],
"constraints": [requirement, ...], "found": {project: version} or null}. Every set that was found has to satisfy every
requirement; where none was found, trying every combination has to find none either. Prints what is wrong, exits 1 if any.
"""

import itertools
import json
import sys

try:
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name
except ImportError:  # pip brings a copy of its own
    from pip._vendor.packaging.requirements import Requirement
    from pip._vendor.packaging.utils import canonicalize_name

ENVIRONMENT = {
    "implementation_name": "cpython",
    "os_name": "posix",
    "platform_machine": "aarch64",
    "platform_system": "Linux",
    "python_full_version": "3.10.12",
    "python_version": "3.10",
    "sys_platform": "linux",
    "extra": "",
}


def parsed(texts):
    return [Requirement(text) for text in texts]


def applies(requirement):
    return requirement.marker is None or requirement.marker.evaluate(ENVIRONMENT)


def wrong(wheels, asked, constraints, chosen):
    """The first thing that is wrong with a set, or None."""
    for name, version in chosen.items():
        for constraint in constraints:
            if canonicalize_name(constraint.name) == name and not constraint.specifier.contains(version, prereleases=True):
                return f"{name} {version} breaks the constraint {constraint}"
    needed, queue = set(), [("the request", requirement) for requirement in asked]
    while queue:
        owner, requirement = queue.pop()
        if not applies(requirement):
            continue
        name = canonicalize_name(requirement.name)
        if name not in chosen:
            return f"{owner} needs {requirement}, which is not in the set"
        if not requirement.specifier.contains(chosen[name], prereleases=True):
            return f"{owner} needs {requirement}, the set has {chosen[name]}"
        if name not in needed:
            needed.add(name)
            queue += [(name, more) for more in wheels[name][chosen[name]]]
    extra = set(chosen) - needed
    return f"nothing needs {sorted(extra)}" if extra else None


def check(universe):
    wheels = {
        name: {version: parsed(texts) for version, texts in versions.items()}
        for name, versions in universe["wheels"].items()
    }
    asked, constraints = parsed(universe["asked"]), parsed(universe["constraints"])
    if universe["found"] is not None:
        return wrong(wheels, asked, constraints, universe["found"])
    names = sorted(wheels)
    for versions in itertools.product(*([None, *wheels[name]] for name in names)):
        chosen = {name: version for name, version in zip(names, versions) if version}
        if wrong(wheels, asked, constraints, chosen) is None:
            return f"none was found, but {chosen} would do"
    return None


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        universes = json.load(file)
    failures = 0
    for number, universe in enumerate(universes):
        text = check(universe)
        if text is not None:
            failures += 1
            print(f"universe {number}: {text}\n  {json.dumps(universe)}")
    print(f"{len(universes)} universes checked, {failures} wrong")
    return 1 if failures or not universes else 0


if __name__ == "__main__":
    sys.exit(main())
