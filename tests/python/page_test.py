"""The page of `xformer report --format html` in a real browser: loads without errors, sorts, every link resolves.

page_test.py --xformer PROGRAM RECORDS...   exit code 77 without Chromium
"""

import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

# Runs in the page after its own script; what it finds goes into the title.
PROBE = """<script>
const found = [];
const table = document.querySelector("table");
const heads = [...table.querySelectorAll("th")];
const order = () => [...table.tBodies[0].rows].map(row => row.cells[1].dataset.value).join(" ");
heads[1].click(); found.push(order());
heads[1].click(); found.push(order());
const links = [...document.querySelectorAll("a[href^='#']")];
found.push(links.filter(link => !document.getElementById(link.getAttribute("href").slice(1))).length + " of " + links.length);
const saved = [...document.querySelectorAll("a[download]")].map(link => decodeURIComponent(link.href.split(",")[1]));
found.push(saved.map(text => text.split("\\n")[0].split(",").slice(0, 3).join(" ")).join("; "));
found.push(document.documentElement.scrollWidth <= window.innerWidth ? "fits" : "too wide");
document.title = found.join("|");
</script></body>"""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--xformer", required=True)
    parser.add_argument("records", nargs="+")
    given = parser.parse_args()
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser is None:
        print("skipped: there is no Chromium")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as folder:
        page = pathlib.Path(folder) / "page.html"
        subprocess.run([given.xformer, "report", *given.records, "--format", "html", "--out", page], check=True)
        page.write_text(page.read_text().replace("</body>", PROBE))
        shown = subprocess.run([browser, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr",
                                f"--user-data-dir={folder}/profile", "--dump-dom", page.as_uri()],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120, check=True)
    assert "CONSOLE" not in shown.stderr, shown.stderr
    up, down, links, saved, width = re.search("<title>(.*?)</title>", shown.stdout, re.S).group(1).split("|")
    values = [float(value) for value in up.split()]
    assert len(values) >= 2 and values == sorted(values), up
    assert [float(value) for value in down.split()] == values[::-1], down
    broken, count = map(int, links.split(" of "))
    assert broken == 0 and count > 0, links
    assert saved == "model task unit; model task seed", saved
    assert width == "fits", width
    print(f"{len(values)} rows sorted both ways, {count} links, no message on the console")


main()
