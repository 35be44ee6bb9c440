#!/usr/bin/env bash
# The page of norma report in a headless browser: figures are drawn, the pointer shows values, runs can be hidden and
# sorted, the theme changes, figures are exported; no console messages, no network requests.
set -uo pipefail
# shellcheck source=tests/e2e/common.sh
. "${SOURCE:?}/tests/e2e/common.sh"

# shellcheck source=tests/e2e/report_runs.sh
. "$SOURCE/tests/e2e/report_runs.sh"
for browser in chromium chromium-browser google-chrome none; do
    command -v $browser >/dev/null && break
done
if [ $browser = none ] || ! command -v gnuplot >/dev/null; then
    echo "skipped: it needs a browser and gnuplot (Debian packages chromium and gnuplot-nox)"
    exit 77
fi
make_runs
make_grid_runs

# A copy of the page with a first script that collects errors and a last one that operates the page and prints the results.
# The content security policy of the page stays in force.
listen='<script>window.errors = [];
addEventListener("error", event => errors.push(event.message));
addEventListener("securitypolicyviolation", event => errors.push("blocked " + event.blockedURI));
for (const kind of ["error", "warn"]) console[kind] = (...words) => errors.push(words.join(" "));
</script>'
act='<script>
const results = [], report = (name, value) => results.push(name + "=" + value), hint = document.getElementById("hint");
const saved = [];
HTMLAnchorElement.prototype.click = function () { saved.push(this.download); };
const texts = [];
const Plain = Blob;
window.Blob = class extends Plain { constructor(parts, options) { super(parts, options); texts.push(parts.join("")); } };
const figures = [...document.querySelectorAll("figure")];
report("figures", figures.length);
report("drawn", figures.filter(f => f.querySelectorAll("svg .curve").length > 0 && f.querySelector("svg").getBoundingClientRect().height > 100).length);
report("read", figures.filter(f => f.querySelector(".description").textContent.length > 20).length);
let hovered = 0;
for (const figure of figures) {
    const plot = figure.querySelector(".plot"), box = plot.querySelector("svg").getBoundingClientRect();
    for (let share = 0.15; share < 0.97; share += 0.02) {
        plot.dispatchEvent(new PointerEvent("pointermove", { clientX: box.left + share * box.width, clientY: box.top + 0.3 * box.height, bubbles: true }));
        if (!hint.hidden) break;
    }
    hovered += !hint.hidden && /\d/.test(hint.textContent) && plot.querySelectorAll(".dot").length > 0;
    plot.dispatchEvent(new PointerEvent("pointerleave"));
    if (!hint.hidden) hovered = NaN;
    figure.querySelector("button.svg").click();
    figure.querySelector("button.csv").click();
}
report("hovered", hovered);
report("saved", new Set(saved).size);
report("svg", texts.filter(t => t.startsWith("<svg") && new DOMParser().parseFromString(t, "image/svg+xml").querySelector("parsererror") === null).length);
report("csv", texts.filter(t => t.startsWith("run,") && t.trim().split("\n").length > 1).length);
const loss = texts.find(t => t.startsWith("run,updates"));
report("row", loss.split("\n").find(l => l.startsWith("layer-1,600,")));
// Figures of grids: the values that the pointer shows and the rows of the CSV files.
const shown = (name, x, y) => {
    const plot = document.querySelector(`#${name} .plot`);
    if (!plot) return "no figure";
    hint.replaceChildren();
    const box = plot.querySelector("svg").getBoundingClientRect();
    plot.dispatchEvent(new PointerEvent("pointermove", { clientX: box.left + x * box.width, clientY: box.top + y * box.height, bubbles: true }));
    const text = [...hint.querySelectorAll("strong, td")].map(e => e.textContent).filter(t => t).join("|");
    plot.dispatchEvent(new PointerEvent("pointerleave"));
    return text;
};
report("setting", shown("setting-score", 0.3, 0.5));
report("cell", shown("setting-heat-map", 0.3, 0.6));
report("axis", shown("setting-parallel", 0.83, 0.15).split("|").slice(0, 1));
report("values", texts.filter(t => /^run,(max_tokens|train.max_tokens),/.test(t)).map(t => t.split("\n")[1]).join(" "));
const color = () => getComputedStyle(document.body).backgroundColor, before = color();
document.getElementById("theme").click();
report("theme", color() !== before);
document.getElementById("theme").click();
report("back", color() === before);
const run = document.querySelector("button.run"), curve = document.querySelector(".curve[data-run=\"0\"]");
const legend = document.querySelectorAll("main > nav.legend button.run");
report("legend", legend.length + " " + (getComputedStyle(legend[0].parentElement).position === "sticky"));
run.click();
report("hides", getComputedStyle(curve).display === "none" && legend[0].getAttribute("aria-pressed") === "false");
run.click();
report("shows", getComputedStyle(curve).display !== "none");
// The column of the test score: ascending, descending, runs without a score last.
const title = [...document.querySelectorAll("button.sort")].find(b => b.textContent.startsWith("test")), column = title.closest("th").cellIndex;
const order = () => [...title.closest("table").tBodies[0].rows].map(r => r.cells[column].dataset.value ?? "-").join(" ");
title.click();
const rising = order();
title.click();
report("sorted", rising + " " + order());
const links = [...document.querySelectorAll("nav.contents a")];
report("contents", links.length > 6 && links.every(a => document.getElementById(a.getAttribute("href").slice(1))));
report("wide", document.documentElement.scrollWidth <= innerWidth);
report("requests", performance.getEntriesByType("resource").length);
report("errors", errors.length + " " + errors.join(" | "));
document.body.replaceChildren(Object.assign(document.createElement("pre"), { textContent: results.join("\n") }));
</script>'
# check_page WIDTH RUNS LINE...: the page of these runs in a window of this width.
check_page() {
    local width=$1 folder=$2 page wanted line
    shift 2
    "$NORMA" report "$folder"/*/ -o page.html 2>err || fail "report: $(cat err)"
    page=$(cat page.html)
    page="${page%%<head>*}<head>$listen${page#*<head>}"
    printf '%s' "${page%</body>*}$act</body></html>" >acted.html
    wanted=$(grep -c '<figure id=' page.html)
    timeout 120 "$browser" --headless=new --no-sandbox --disable-gpu --user-data-dir="$work/profile" --no-first-run \
        --disable-background-networking --disable-component-update --window-size="$width",900 --dump-dom \
        "file://$work/acted.html" >dom 2>browser.log || {
        fail "the browser failed: $(tail -n 3 browser.log)"
        exit 1
    }
    sed -n '/<pre>/,/<\/pre>/p' dom | sed 's/.*<pre>//; s/<\/pre>.*//' >results
    for line in "figures=$wanted" "drawn=$wanted" "read=$wanted" "hovered=$wanted" "saved=$((2 * wanted))" "svg=$wanted" \
        "csv=$wanted" "legend=$(find "$folder" -name log.jsonl | wc -l) true" contents=true theme=true back=true hides=true \
        shows=true wide=true requests=0 "$@"; do
        grep -qxF -- "$line" results || fail "$folder at width $width not '$line' but '$(grep "^${line%%=*}=" results)'"
    done
    grep -q '^errors=0 ' results || fail "$folder at width $width the page has errors: $(grep '^errors=' results)"
}
for width in 1400 500; do
    check_page $width runs "row=layer-1,600,2.55495,," "sorted=22.5 24.5 25.5 26.5 - - 26.5 25.5 24.5 22.5 - -"
done
check_page 1400 grid "setting=train.max_tokens 64|layer|35 (35 to 35)" \
    "cell=train.max_tokens 64, train.lr'&lt;b&gt;x&lt;/b&gt; 0.1|batch|21.5" "axis=BLEU" \
    "values=layer,64,35,35,35 batch,4096,0.1,29.5 rbn max_tokens=4096 lr'&lt;b&gt;x&lt;/b&gt;=0.1 lambda=0,4096,0.1,0,36"
