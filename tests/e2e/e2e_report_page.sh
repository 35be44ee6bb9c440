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
if [ $browser = none ]; then
    echo "skipped: it needs a browser (Debian package chromium)"
    exit 77
fi
make_runs
make_grid_runs
# Values of the table of runs that are not in numerical order as texts: p "<0.001", and throughputs with separators.
sed -i 's/0.09/0.0001/' runs/batch-1/test.json
sed -i 's/0.09/0.25/' runs/rbn-1/test.json
sed -i 's/"tokens_per_second":2/"tokens_per_second":12/' runs/power-1/log.jsonl
sed -i 's/"tokens_per_second":2000/"tokens_per_second":987/; s/"tokens_per_second":200[12]/"tokens_per_second":988/' runs/batch-1/log.jsonl

# A table with texts that the table of runs writes in another form is added to the page.
made_up='<section id="made-up"><table><thead><tr><th>name</th><th>number</th><th>p</th><th>score</th><th>mixed</th></tr></thead><tbody>
<tr><td>run-10</td><td>1,234</td><td>p &lt; 0.001</td><td>12.3 ± 0.4</td><td>b</td></tr>
<tr><td>run-2</td><td>–</td><td>0.001</td><td>−3.5 ± 0.1</td><td>12 %</td></tr>
<tr><td>run-1</td><td>999</td><td>p = 0.04</td><td>9.8 ± 1.2</td><td></td></tr>
<tr><td>run-3</td><td>12,345.5</td><td>–</td><td>1e2</td><td>a</td></tr></tbody></table></section>'
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
dispatchEvent(new Event("beforeprint")); // draws the figures outside the window, too
// Colored points of a canvas: curves have saturated colors, axes and text do not.
const ink = figure => {
    const canvas = figure.querySelector("canvas");
    if (!canvas) return 0;
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    let n = 0;
    for (let i = 0; i < data.length; i += 4) n += data[i + 3] > 99 && Math.max(data[i], data[i + 1], data[i + 2]) - Math.min(data[i], data[i + 1], data[i + 2]) > 40;
    return n;
};
const point = (figure, x, y) => {
    const over = figure.querySelector(".u-over"), box = over.getBoundingClientRect();
    over.dispatchEvent(new MouseEvent("mouseenter", { clientX: box.left + x * box.width, clientY: box.top + y * box.height, bubbles: true }));
    over.dispatchEvent(new MouseEvent("mousemove", { clientX: box.left + x * box.width, clientY: box.top + y * box.height, bubbles: true }));
};
let hovered = 0;
(async () => {
const frame = () => new Promise(done => setTimeout(done, 60));
await frame();
report("drawn", figures.filter(f => ink(f) > 30).length);
for (const figure of figures) {
    figure.scrollIntoView();
    await frame();
    let seen = false;
    for (let share = 0.02; share < 0.99 && !seen; share += 0.04) {
        point(figure, share, 0.3);
        await frame();
        seen = !hint.hidden && /\d/.test(hint.textContent);
    }
    hovered += seen;
    figure.querySelector("button.csv").click();
    figure.querySelector(".values").open = true;
}
await frame();
report("hovered", hovered);
report("saved", new Set(saved).size);
report("tables", figures.filter(f => f.querySelectorAll(".values tr").length > 1).length);
report("csv", texts.filter(t => t.startsWith("run,") && t.trim().split("\n").length > 1).length);
const loss = texts.find(t => t.startsWith("run,updates"));
report("row", loss.split("\n").find(l => l.startsWith("layer-1,600,")));
// Figures of grids: the values that the pointer shows and the rows of the CSV files.
const shown = async (name, x, y) => {
    const figure = document.getElementById(name);
    if (!figure) return "no figure";
    hint.replaceChildren();
    figure.scrollIntoView();
    await frame();
    point(figure, x, y);
    await frame();
    return [...hint.querySelectorAll("strong, td")].map(e => e.textContent).filter(t => t).join("|");
};
report("setting", await shown("setting-score", 0.05, 0.5));
report("cell", await shown("setting-heat-map", 0.2, 0.75));
report("axis", (await shown("setting-parallel", 0.88, 0.15)).split("|").slice(0, 1));
report("values", texts.filter(t => /^run,(max_tokens|train.max_tokens),/.test(t)).map(t => t.split("\n")[1]).join(" "));
const color = () => getComputedStyle(document.body).backgroundColor, before = color();
document.getElementById("theme").click();
report("theme", color() !== before);
document.getElementById("theme").click();
report("back", color() === before);
const legend = document.querySelectorAll("main > nav.legend button.run");
report("legend", legend.length + " " + (getComputedStyle(legend[0].parentElement).position === "sticky"));
// What the page draws: the colors of a figure in the window.
const loss_figure = document.getElementById("train-loss");
loss_figure.scrollIntoView();
await frame();
const all = ink(loss_figure), runs = [...legend];
runs.slice(1).forEach(button => button.click());
await frame();
report("hides", ink(loss_figure) < all && ink(loss_figure) > 0 && runs[1].getAttribute("aria-pressed") === "false");
runs.slice(1).forEach(button => button.click());
await frame();
report("shows", ink(loss_figure) === all);
const change = async (id, set) => {
    set(document.getElementById(id));
    document.getElementById(id).dispatchEvent(new Event("change"));
    await frame();
};
const x_of = async share => { point(loss_figure, share, 0.5); await frame(); return Number(hint.querySelector("strong").textContent.replace("update ", "")); };
const y_of = async share => { point(loss_figure, share, 0.5); await frame(); return [...hint.querySelectorAll("tr")].find(r => r.cells[1].textContent.startsWith(runs[0].textContent))?.cells[2].textContent; };
if (!document.getElementById("setting-score")) {
    report("start", await x_of(0.01));
    await change("half", e => { e.checked = true; });
    report("half", await x_of(0.01));
    await change("half", e => { e.checked = false; });
    const over = loss_figure.querySelector(".u-over"), box = over.getBoundingClientRect();
    const mouse = (target, kind, share) => target.dispatchEvent(new MouseEvent(kind, { clientX: box.left + share * box.width, clientY: box.top + 50, bubbles: true, button: 0 }));
    mouse(over, "mousemove", 0.25);
    mouse(over, "mousedown", 0.25);
    mouse(over, "mousemove", 0.5);
    await frame();
    mouse(over, "mouseup", 0.5);
    await frame();
    report("zoomed", (await x_of(0.01)) + " " + (await x_of(0.99)));
    loss_figure.querySelector(".u-over").dispatchEvent(new MouseEvent("dblclick", { bubbles: true }));
    await frame();
    report("unzoomed", await x_of(0.01));
    const before = await y_of(0.999);
    await change("smooth", e => { e.value = "100"; });
    report("smoothed", before + " " + await y_of(0.999));
    await change("smooth", e => { e.value = "0"; });
    loss_figure.querySelector(".axis[data-axis=y]").click();
    await frame();
    report("log", ink(loss_figure) > 30);
}
// Every column of the tables: ascending, descending, the original order; rows without a value last.
const click = (title, column) => {
    const cells = () => [...title.closest("table").tBodies[0].rows].map(r => r.cells[column].textContent.trim()).join(" ; ");
    return [0, 1, 2].map(() => { title.click(); return cells() + " " + (title.ariaSort ?? "unsorted"); }).join(" / ");
};
const titles = selector => [...document.querySelectorAll(selector + " thead th")];
for (const title of titles("#runs")) report("sorted " + title.textContent, click(title, title.cellIndex));
for (const title of titles("#settings").slice(0, 2)) report("settings by " + title.textContent, click(title, title.cellIndex));
for (const title of titles("#made-up")) report("made-up " + title.textContent, click(title, title.cellIndex));
// The button of the title, which the keyboard reaches, sorts once per click.
titles("#runs")[1].querySelector("button").click();
report("button", titles("#runs")[1].ariaSort);
const links = [...document.querySelectorAll("nav.contents a")];
report("contents", links.length > 6 && links.every(a => document.getElementById(a.getAttribute("href").slice(1))));
report("wide", document.documentElement.scrollWidth <= innerWidth);
report("requests", performance.getEntriesByType("resource").length);
report("errors", errors.length + " " + errors.join(" | "));
document.body.replaceChildren(Object.assign(document.createElement("pre"), { textContent: results.join("\n") }));
})();
</script>'
# check_page WIDTH RUNS LINE...: the page of these runs in a window of this width.
check_page() {
    local width=$1 folder=$2 page wanted line
    shift 2
    "$NORMA" report "$folder"/*/ -o page.html 2>err || fail "report: $(cat err)"
    page=$(cat page.html)
    page="${page%%<head>*}<head>$listen${page#*<head>}"
    page="${page%%<main>*}<main>$made_up${page#*<main>}"
    printf '%s' "${page%</body>*}$act</body></html>" >acted.html
    wanted=$(grep -c '<figure id=' page.html)
    timeout 120 "$browser" --headless=new --no-sandbox --disable-gpu --user-data-dir="$work/profile" --no-first-run \
        --disable-background-networking --disable-component-update --window-size="$width",900 --virtual-time-budget=60000 --dump-dom \
        "file://$work/acted.html" >dom 2>browser.log || {
        fail "the browser failed: $(tail -n 3 browser.log)"
        exit 1
    }
    sed -n '/<pre>/,/<\/pre>/p' dom | sed 's/.*<pre>//; s/<\/pre>.*//' >results
    for line in "figures=$wanted" "drawn=$wanted" "tables=$wanted" "hovered=$wanted" "saved=$wanted" \
        "csv=$wanted" "legend=$(find "$folder" -name log.jsonl | wc -l) true" contents=true theme=true back=true hides=true \
        shows=true wide=true requests=0 "$@"; do
        grep -qxF -- "$line" results || fail "$folder at width $width not '$line' but '$(grep "^${line%%=*}=" results)'"
    done
    grep -q '^errors=0 ' results || fail "$folder at width $width the page has errors: $(grep '^errors=' results)"
}
# TITLE=ASCENDING / DESCENDING / ORIGINAL
made_up_lines=(
    "made-up name=run-1 ; run-2 ; run-3 ; run-10 ascending / run-10 ; run-3 ; run-2 ; run-1 descending / run-10 ; run-2 ; run-1 ; run-3 unsorted"
    "made-up number=999 ; 1,234 ; 12,345.5 ; – ascending / 12,345.5 ; 1,234 ; 999 ; – descending / 1,234 ; – ; 999 ; 12,345.5 unsorted"
    "made-up p=p &lt; 0.001 ; 0.001 ; p = 0.04 ; – ascending / p = 0.04 ; 0.001 ; p &lt; 0.001 ; – descending / p &lt; 0.001 ; 0.001 ; p = 0.04 ; – unsorted"
    "made-up score=−3.5 ± 0.1 ; 9.8 ± 1.2 ; 12.3 ± 0.4 ; 1e2 ascending / 1e2 ; 12.3 ± 0.4 ; 9.8 ± 1.2 ; −3.5 ± 0.1 descending / 12.3 ± 0.4 ; −3.5 ± 0.1 ; 9.8 ± 1.2 ; 1e2 unsorted"
    "made-up mixed=12 % ; a ; b ;  ascending / b ; a ; 12 % ;  descending / b ; 12 % ;  ; a unsorted" button=ascending)
sorted_lines=(
    "sorted test BLEU=22.50 ; 24.50 ; 25.50 ; 26.50 ; – ; – ascending / 26.50 ; 25.50 ; 24.50 ; 22.50 ; – ; – descending / – ; 22.50 ; – ; 25.50 ; 26.50 ; 24.50 unsorted"
    "sorted p (Holm)=&lt;0.001 ; 0.090 ; 0.250 ; – ; – ; – ascending / 0.250 ; 0.090 ; &lt;0.001 ; – ; – ; – descending / – ; &lt;0.001 ; – ; – ; 0.090 ; 0.250 unsorted"
    "sorted tokens/s=988 ; 2,001 ; 2,001 ; 2,001 ; 2,001 ; 12,001 ascending / 12,001 ; 2,001 ; 2,001 ; 2,001 ; 2,001 ; 988 descending / 2,001 ; 988 ; 2,001 ; 2,001 ; 12,001 ; 2,001 unsorted")
for width in 1400 500; do
    check_page $width runs "start=10" "half=300" "zoomed=150 300" "unzoomed=10" "log=true" "row=layer-1,600,29.0043,," "${sorted_lines[@]}" "${made_up_lines[@]}"
done
check_page 1400 grid "setting=train.max_tokens 64|layer|35 (35 to 35)" \
    "cell=train.max_tokens 64, train.lr'&lt;b&gt;x&lt;/b&gt; 0.1|batch|21.5" "axis=BLEU" \
    "values=layer,64,35,35,35 batch,4096,0.1,29.5 rbn max_tokens=4096 lr'&lt;b&gt;x&lt;/b&gt;=0.1 lambda=0,4096,0.1,0,36" \
    "settings by option=model.norm ; norm.rbn.lambda ; train.lr'&lt;b&gt;x&lt;/b&gt; ; train.max_tokens ascending / train.max_tokens ; train.lr'&lt;b&gt;x&lt;/b&gt; ; norm.rbn.lambda ; model.norm descending / model.norm ; train.max_tokens ; train.lr'&lt;b&gt;x&lt;/b&gt; ; norm.rbn.lambda unsorted"
