#!/usr/bin/env python3
"""Holds the floors of src/: a folder includes and links only folders on strictly lower floors.

Checks every C++ and CUDA file under src/ for
  - an include of another folder on the same floor or above, of an unknown folder, or without its folder;
  - getenv or argv outside cli/ (and main.cc);
  - conditional compilation inside model/ and in the kernels' shared headers (kernels/<op>.h);
  - CUDA headers outside kernels/cuda/ and core/;
and src/CMakeLists.txt for snug_library(… DEPS …) that do not go strictly down.

Prints FILE:LINE: what is wrong, one per line, and exits 1 if there is any.
  tools/check_floors.py [ROOT]       ROOT defaults to the project this file is in
  tools/check_floors.py --self-test  builds small trees that break each rule and expects to be told so
"""

import pathlib
import re
import sys
import tempfile
import unittest

FLOORS = {
    "base": 0,
    "core": 1, "text": 1, "grammar": 1,
    "quant": 2, "kv": 2, "dist": 2, "image": 2,
    "formats": 3, "kernels": 3,
    "ops": 4,
    "model": 5,
    "plan": 6,
    "residency": 7,
    "engine": 8, "train": 8,
    "llm": 9,
    "server": 10,
    "cli": 11,
}
MAIN_FLOOR = 12  # src/main.cc stands on the roof

# Written in quotes by its own convention: it includes the file again for each target.
QUOTED_LIBRARIES = {"hwy"}

SUFFIXES = {".cc", ".h", ".cu", ".cuh"}

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
CONDITIONAL = re.compile(r"^\s*#\s*(if|ifdef|ifndef|elif|elifdef|elifndef)\b")
ENVIRONMENT = re.compile(r"\b((?:secure_)?getenv|environ|argv)\b")
CUDA_HEADER = re.compile(r"^(cuda[A-Za-z0-9_]*\.h|cuda/.*|cublas.*|cudnn.*|nccl.*|cub/.*|thrust/.*|cute/.*|cutlass/.*|"
                         r"cooperative_groups.*|mma\.h|nvml\.h)$")
LIBRARY = re.compile(r"\bsnug_library\s*\(([^)]*)\)")
KEYWORDS = {"DEPS", "LINK", "DIRS"}

# Comments and literals, so that words inside them are not taken for code. A raw string comes before a plain one.
NOT_CODE = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<tag>[^()\\\s]{0,16})\(.*?\)(?P=tag)"|"(?:\\.|[^"\\\n])*"|'
    r"(?<![0-9A-Za-z_])'(?:\\.|[^'\\\n])+'", re.DOTALL)


def blank(match):
    return re.sub(r"[^\n]", " ", match.group(0))


def without_comments(text):
    """The text with comments blanked and literals kept: for include lines."""
    return NOT_CODE.sub(lambda m: blank(m) if m.group(0).startswith("/") else m.group(0), text)


def only_code(text):
    """The text with comments and literals blanked; line numbers stay."""
    return NOT_CODE.sub(blank, text)


def check_include(folder, path_in_src, quote, target):
    """What is wrong with one include, or None."""
    first, slash, _ = target.partition("/")
    if CUDA_HEADER.match(target):
        if folder == "core" or path_in_src.parts[:2] == ("kernels", "cuda"):
            return None
        return f"includes the CUDA header {target}: only kernels/cuda/ and core/ may"
    if first not in FLOORS:
        if quote == "<" or (slash and first in QUOTED_LIBRARIES):
            return None
        if not slash:
            return f'includes "{target}" without its folder: write "{folder or "folder"}/{target}"'
        return f'includes "{target}" from the unknown folder {first}/ (other people\'s headers go in <>)'
    if not slash:
        return None
    floor = FLOORS.get(folder, MAIN_FLOOR)
    if first != folder and FLOORS[first] >= floor:
        return (f"{folder}/ (floor {floor}) includes {target} (floor {FLOORS[first]}): "
                "a folder may include only strictly lower floors")
    return None


def check_file(src, path):
    problems = []
    inside = path.relative_to(src)
    folder = inside.parts[0] if len(inside.parts) > 1 else ""
    if folder and folder not in FLOORS:
        return [(path, 1, f"{folder}/ has no floor: add it to FLOORS in tools/check_floors.py")]
    if not folder and inside.name != "main.cc":
        return [(path, 1, "only main.cc may stand directly in src/")]

    text = path.read_text(encoding="utf-8", errors="replace")
    for number, line in enumerate(without_comments(text).splitlines(), 1):
        match = INCLUDE.match(line)
        if match:
            problem = check_include(folder, inside, *match.groups())
            if problem:
                problems.append((path, number, problem))

    may_read_environment = folder in ("", "cli")
    is_model = folder == "model"
    is_kernel_door = folder == "kernels" and len(inside.parts) == 2 and inside.suffix == ".h"
    for number, line in enumerate(only_code(text).splitlines(), 1):
        match = ENVIRONMENT.search(line)
        if match and not may_read_environment:
            problems.append((path, number, f"uses {match.group(1)}: only cli/ reads arguments and environment"))
        if CONDITIONAL.match(line) and (is_model or is_kernel_door):
            where = "model/" if is_model else "kernels/<op>.h"
            problems.append((path, number, f"conditional compilation in {where}: choose in ops/ or by CMake"))
    return problems


def check_cmake(path):
    if not path.exists():
        return []
    problems = []
    text = re.sub(r"#[^\n]*", lambda m: " " * len(m.group(0)), path.read_text(encoding="utf-8"))
    for match in LIBRARY.finditer(text):
        number = text.count("\n", 0, match.start()) + 1
        words = match.group(1).split()
        if not words or words[0].startswith("$"):
            continue
        name, section = words[0], None
        if name not in FLOORS:
            problems.append((path, number, f"library {name} has no floor"))
            continue
        for word in words[1:]:
            if word in KEYWORDS:
                section = word
                continue
            dependency = word.removeprefix("snug_")
            if section != "DEPS" and not word.startswith("snug_"):
                continue
            if dependency not in FLOORS:
                problems.append((path, number, f"{name} depends on {word}, which has no floor"))
            elif FLOORS[dependency] >= FLOORS[name]:
                problems.append((path, number, f"{name} (floor {FLOORS[name]}) links {dependency} "
                                               f"(floor {FLOORS[dependency]}): not strictly lower"))
    return problems


def check_tree(root):
    src = root / "src"
    problems = []
    for path in sorted(src.rglob("*")):
        if path.is_file() and path.suffix in SUFFIXES:
            problems += check_file(src, path)
    return problems + check_cmake(src / "CMakeLists.txt")


class SelfTest(unittest.TestCase):
    def check(self, files):
        """Builds a tree of {name: text}; returns {"name:line"} of the problems."""
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, text in files.items():
                path = root / "src" / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
            found = check_tree(root)
            return {f"{path.relative_to(root / 'src')}:{line}" for path, line, _ in found}

    def test_a_clean_tree_passes(self):
        self.assertEqual(set(), self.check({
            "base/error.h": "#pragma once\n#include <string>\n",
            "core/dtype.h": '#include "base/error.h"\n#include <cuda_runtime.h>\n',
            "kernels/linear.h": '#include "core/dtype.h"\n#include "quant/format.h"\n',
            "kernels/cuda/linear.cu": '#include <cuda_bf16.h>\n#include "kernels/linear.h"\n',
            "kernels/cpu/linear.cc": '#if HWY_ONCE\n#include "kernels/linear.h"\n#include "hwy/highway.h"\n#endif\n',
            "cli/run.cc": '#include "llm/llm.h"\n#include "cli/command.h"\nauto x = std::getenv("HOME");\n',
            "main.cc": '#include "cli/cli.h"\nint main(int argc, char** argv) { return cli(argc, argv); }\n',
            "model/qwen2.cc": '// #if in a comment, argv too\nauto s = "getenv";\n',
            "CMakeLists.txt": "snug_library(base)\nsnug_library(core DEPS base LINK fmt::fmt)\n",
        }))

    def test_include_upward_and_sideways(self):
        self.assertEqual({"base/a.h:2", "core/b.h:1", "formats/c.cc:1", "text/d.h:1"}, self.check({
            "base/a.h": '#pragma once\n#include "core/dtype.h"\n',
            "core/b.h": '#include "text/tokenizer.h"\n',
            "formats/c.cc": '  #  include "kernels/linear.h"\n',
            "text/d.h": "#include <engine/sampler.h>\n",
        }))

    def test_a_commented_include_is_none(self):
        self.assertEqual(set(), self.check({"base/a.h": '// #include "cli/b.h"\n/*\n#include "cli/b.h"\n*/\n'}))

    def test_unknown_folders(self):
        self.assertEqual({"util/a.h:1", "base/b.h:1", "base/c.h:1", "other.cc:1"}, self.check({
            "util/a.h": "\n",
            "base/b.h": '#include "util/a.h"\n',
            "base/c.h": '#include "error.h"\n',
            "other.cc": "\n",
        }))

    def test_environment_outside_cli(self):
        self.assertEqual({"engine/a.cc:3", "llm/b.cc:1"}, self.check({
            "engine/a.cc": '// getenv is forbidden\nauto quote = \'"\';\nauto x = std::getenv("X");\n',
            "llm/b.cc": "void f(char** argv);\n",
        }))

    def test_switches_in_model_and_kernel_doors(self):
        self.assertEqual({"model/a.cc:2", "model/a.cc:4", "kernels/b.h:1"}, self.check({
            "model/a.cc": "int a;\n#ifdef SNUG_CUDA\nint b;\n#elif defined(X)\n#endif\n",
            "kernels/b.h": "#if SNUG_CUDA\n#endif\n",
        }))

    def test_cuda_headers(self):
        self.assertEqual({"ops/a.cc:1", "kernels/cpu/b.cc:1"}, self.check({
            "ops/a.cc": "#include <cuda_runtime.h>\n",
            "kernels/cpu/b.cc": "#include <cublasLt.h>\n",
        }))

    def test_cmake_dependencies(self):
        self.assertEqual({"CMakeLists.txt:2", "CMakeLists.txt:3", "CMakeLists.txt:5", "CMakeLists.txt:6"}, self.check({
            "CMakeLists.txt": "# snug_library(base DEPS cli)\nsnug_library(core DEPS text)\n"
                              "snug_library(quant\n  DEPS core ops)\nsnug_library(plan DEPS nowhere)\n"
                              "snug_library(kv DEPS core LINK snug_cli)\n",
        }))


def main():
    if "--self-test" in sys.argv[1:]:
        suite = unittest.defaultTestLoader.loadTestsFromTestCase(SelfTest)
        return 0 if unittest.TextTestRunner().run(suite).wasSuccessful() else 1
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent
    if not (root / "src").is_dir():
        print(f"{root}: has no src/ folder", file=sys.stderr)
        return 2
    problems = check_tree(root)
    for path, line, problem in problems:
        print(f"{path}:{line}: {problem}")
    if problems:
        print(f"check_floors: {len(problems)} problem(s)", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
