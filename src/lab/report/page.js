// The script of the page: figures (drawn by uPlot), zoom, smoothing, hiding of runs, sorting of tables, CSV files, and
// updates from the server of norma watch.
'use strict';
(() => {
    const $ = id => document.getElementById(id), hint = $('hint'), root = document.documentElement, live = 'live' in document.body.dataset;
    const hidden = new Set(); // names of runs
    const charts = new Map(), zooms = new Map(), logs = new Map(), finer = new Map(), sorted = new Map();
    const near = new Set(), stale = new Set(); // figures close to the window; those to be drawn again
    let data = JSON.parse($('data').textContent);

    // ---- formatted numbers ----
    const power = value => {
        const [factor, exponent] = value.toExponential(2).split('e');
        return `${factor}\u00d710${[...exponent.replace('+', '')].map(c => '\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079'[c] ?? '\u207b').join('')}`;
    };
    const show = value => {
        const size = Math.abs(value);
        if (Number.isInteger(value) || (size >= 1000 && size < 1e6)) return Math.round(value).toLocaleString('en-US');
        return size >= 1e6 || (size < 1e-4 && size > 0) ? power(value) : String(Number(value.toPrecision(4)));
    };

    // ---- curves ----
    const runsOf = curve => curve.runs ?? [curve.run];
    const isHidden = curve => runsOf(curve).every(run => hidden.has(data.runs[run].name));
    const nameOf = curve => curve.name ?? data.runs[curve.run].name;
    const tickOf = (figure, x) => String(figure.ticks[x] ?? x);
    const figureOf = name => finer.get(name) ?? data.figures[name];
    const isHistory = figure => figure.style === 'lines' && !figure.ticks.length;
    const isLog = (name, axis) => logs.get(name + axis) ?? (axis === 'y' && data.figures[name].log);

    // An exponential mean whose half-life is a number of updates: it depends neither on the length of the run nor on the
    // number of points, because reduced curves have the means of their segments.
    const smoothed = (curve, life) => {
        const x = curve.meanX ?? curve.x, y = curve.meanY ?? curve.y;
        let sum = 0, weight = 0;
        return { x, y: y.map((value, i) => {
            const keep = i ? 2 ** ((x[i - 1] - x[i]) / life) : 0;
            sum = sum * keep + value;
            weight = weight * keep + 1;
            return sum / weight;
        }) };
    };
    const interpolate = (line, at) => {
        let i = 1;
        return at.map(x => {
            while (i < line.x.length - 1 && line.x[i] < x) i++;
            const [a, b] = [line.x[i - 1], line.x[i] ?? line.x[i - 1]];
            return b > a ? line.y[i - 1] + (x - a) / (b - a) * (line.y[i] - line.y[i - 1]) : line.y[i - 1];
        });
    };
    // Mean of the seeds of a variant where all have values, with the 95 % t interval, or the range of two seeds.
    const quantile = n => [0, 0, 0, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262][n] ?? 1.96 + 2.5 / (n - 1);
    const meanOf = lines => {
        const from = Math.max(...lines.map(line => line.x[0])), to = Math.min(...lines.map(line => line.x.at(-1)));
        const x = [...new Set(lines.flatMap(line => line.x))].filter(at => at >= from && at <= to).sort((a, b) => a - b);
        const all = lines.map(line => interpolate(line, x)), n = lines.length;
        const y = x.map((_, i) => all.reduce((sum, list) => sum + list[i], 0) / n);
        const wide = x.map((_, i) => n < 3 ? Math.abs(all[0][i] - y[i])
            : quantile(n) * Math.sqrt(all.reduce((sum, list) => sum + (list[i] - y[i]) ** 2, 0) / (n - 1) / n));
        return { x, y, low: y.map((value, i) => value - wide[i]), high: y.map((value, i) => value + wide[i]), band: true };
    };
    // What is drawn: a line or marks per visible curve, and smoothed lines or means of seeds above them.
    const linesOf = (figure, faint) => {
        const lines = [], variants = new Map(), life = figure.x === 'updates' ? Number($('smooth').value) : 0;
        figure.curves.forEach((curve, c) => {
            if (isHidden(curve) || !curve.x.length) return;
            const look = { curve, name: nameOf(curve), color: curve.color, dash: curve.dashes.split(',').map(Number).filter(Boolean), width: curve.bold ? 3.5 : 2 };
            const shift = ((c + 0.5) / figure.curves.length - 0.5) * figure.spread;
            const order = curve.x.map((_, i) => i).sort((a, b) => curve.x[a] - curve.x[b]);
            const raw = { ...look, order, x: order.map(i => (figure.at ? figure.at[curve.x[i]] : curve.x[i]) + shift), y: order.map(i => curve.y[i]),
                low: curve.low && order.map(i => curve.low[i]), high: curve.low && order.map(i => curve.high[i]) };
            if (!isHistory(figure)) return lines.push(raw);
            const line = life ? { ...look, ...smoothed(curve, life) } : raw;
            if (life && faint) lines.push({ ...raw, faint: true });
            if (!$('seeds').checked) return lines.push(line);
            const key = data.runs[curve.run].variant;
            if (!variants.has(key)) variants.set(key, []);
            variants.get(key).push(curve.meanX && !life ? { ...look, x: curve.meanX, y: curve.meanY } : line);
        });
        for (const list of variants.values())
            lines.push(list.length < 2 ? list[0] : { ...list[0], ...meanOf(list), name: `${list[0].name.replace(/-\d+$/, '')}, mean of ${list.length}` });
        return lines;
    };

    // ---- drawing ----
    const css = name => getComputedStyle(root).getPropertyValue(name).trim();
    const logTicks = (low, high) => {
        const ticks = [], decades = Math.log10(high / low);
        if (decades < 0.8) {
            const step = [1, 2, 5, 10].map(k => k * 10 ** Math.floor(Math.log10((high - low) / 6))).find(s => (high - low) / s <= 6);
            for (let at = Math.ceil(low / step) * step; at <= high; at += step) ticks.push(at);
        } else {
            const every = Math.ceil(decades / 6);
            for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++)
                for (const k of decades > 3 ? [1] : [1, 2, 5])
                    if (power % every === 0 && k * 10 ** power >= low && k * 10 ** power <= high) ticks.push(k * 10 ** power);
        }
        return ticks;
    };
    const axisOf = (figure, labels, log, at) => ({
        stroke: css('--soft'), grid: { show: !figure.rows.length && figure.style !== 'parallel', stroke: css('--line'), width: 1 },
        ticks: { stroke: css('--line'), width: 1, size: 4 }, font: '12px system-ui, sans-serif', labelFont: '12px system-ui, sans-serif',
        labelSize: 20, gap: 4, filter: (_, list) => list,
        ...labels.length ? { splits: () => at ?? labels.map((_, i) => i), values: () => labels.map(text => text.slice(0, 24)) }
            : { values: (_, list) => list.map(value => value === null ? '' : show(Number(value.toPrecision(6)))), ...log ? { splits: (_, i, low, high) => logTicks(low, high) } : {} },
    });
    const decorate = (u, figure, lines) => {
        const { ctx, bbox: { left, top, width, height } } = u, dots = devicePixelRatio;
        const X = x => u.valToPos(x, 'x', true), Y = y => u.valToPos(y, 'y', true);
        ctx.save();
        ctx.beginPath();
        ctx.rect(left, top, width, height);
        ctx.clip();
        ctx.lineWidth = dots;
        if (figure.line !== null) {
            ctx.strokeStyle = css('--soft');
            ctx.strokeRect(left - 9, Y(figure.line), width + 18, 0);
        }
        if (figure.style === 'parallel') {
            ctx.strokeStyle = css('--line');
            for (const i of figure.ticks.keys()) ctx.strokeRect(X(i), Y(1), 0, Y(0) - Y(1));
        }
        for (const line of lines) {
            ctx.strokeStyle = ctx.fillStyle = line.color;
            if (line.band) {
                ctx.globalAlpha = 0.18;
                ctx.beginPath();
                line.x.forEach((x, i) => ctx.lineTo(X(x), Y(line.high[i])));
                for (let i = line.x.length; i--;) ctx.lineTo(X(line.x[i]), Y(line.low[i]));
                ctx.fill();
                ctx.globalAlpha = 1;
            } else if (line.low) {
                ctx.lineWidth = 1.5 * dots;
                line.x.forEach((x, i) => ctx.strokeRect(X(x), Y(line.high[i]), 0, Y(line.low[i]) - Y(line.high[i])));
            }
            line.curve.cells?.forEach(([fill, ink, text], i) => {
                const [x, y] = [line.curve.x[i], line.curve.y[i]];
                ctx.fillStyle = fill;
                ctx.fillRect(X(x - 0.48), Y(y + 0.47), X(x + 0.48) - X(x - 0.48), Y(y - 0.47) - Y(y + 0.47));
                ctx.fillStyle = ink;
                ctx.textAlign = 'center';
                ctx.textBaseline = 'middle';
                ctx.font = `${12 * dots}px system-ui, sans-serif`;
                ctx.fillText(text, X(x), Y(y));
            });
        }
        ctx.restore();
    };
    const writeLabels = (u, figure) => {
        const { ctx } = u, dots = devicePixelRatio;
        ctx.save();
        ctx.font = `${12 * dots}px system-ui, sans-serif`;
        ctx.lineWidth = 3 * dots;
        ctx.lineJoin = 'round';
        ctx.textAlign = figure.style === 'parallel' ? 'left' : 'center';
        ctx.textBaseline = 'middle';
        ctx.strokeStyle = css('--paper');
        ctx.fillStyle = css('--ink');
        for (const [x, y, text] of figure.labels) {
            const at = [text, u.valToPos(x, 'x', true) + (figure.style === 'parallel' ? 4 * dots : 0), u.valToPos(y, 'y', true)];
            ctx.strokeText(...at);
            ctx.fillText(...at);
        }
        ctx.restore();
    };
    const rangeOf = (name, figure, lines) => {
        const [low, high] = figure.range;
        if (zooms.has(name)) return zooms.get(name);
        const first = Math.min(...lines.flatMap(line => line.x.find(x => x > 0) ?? []));
        if (isLog(name, 'x')) return [Number.isFinite(first) ? first : 1, high];
        return $('half').checked && isHistory(figure) ? [(low + high) / 2, high] : [low, high];
    };
    const draw = name => {
        const plot = $(name)?.querySelector('.plot'), figure = figureOf(name);
        charts.get(name)?.destroy();
        charts.delete(name);
        stale.delete(name);
        if (!plot || !figure) return;
        const lines = linesOf(figure, true), logX = isLog(name, 'x'), logY = isLog(name, 'y'), range = rangeOf(name, figure, lines);
        const own = (!isHistory(figure) || (!zooms.has(name) && !$('half').checked && !Number($('smooth').value))) && logY === data.figures[name].log;
        const letters = figure.ticks.reduce((sum, tick) => sum + Math.min(24, tick.length) + 2, 0), turned = letters > plot.clientWidth / 8;
        const positive = (values, log) => log ? values.map(value => value > 0 ? value : null) : values;
        const tables = lines.map(line => [line.x, positive(line.y, logY)]);
        const pad = (low, high) => logY ? [low / (high / low) ** 0.05 / 1.001, high * (high / low) ** 0.05 * 1.001]
            : [low - 0.05 * (high - low || Math.abs(low) || 1), high + 0.05 * (high - low || Math.abs(low) || 1)];
        charts.set(name, new uPlot({
            width: Math.max(200, plot.clientWidth), height: 310 + (turned ? 70 : 0) + Math.max(0, figure.rows.length * 28 - 230),
            legend: { show: false },
            scales: { x: { time: false, distr: logX ? 3 : 1, range: () => range },
                y: { distr: logY ? 3 : 1, range: (_, low, high) => own || low === null ? figure.range.slice(2) : pad(low, high) } },
            axes: [{ ...axisOf(figure, figure.ticks, logX, figure.at), label: figure.x, ...turned ? { rotate: 50, size: 100 } : { size: 30 } },
                { ...axisOf(figure, figure.rows, logY), label: figure.y, size: figure.rows.length ? 110 : 56, ...figure.style === 'parallel' ? { values: () => [] } : {} }],
            series: [{}, ...lines.map(line => ({ stroke: line.color, width: line.width, dash: line.dash, alpha: line.faint ? 0.25 : 1,
                ...['lines', 'depth', 'parallel'].includes(figure.style) ? {} : { paths: () => null },
                points: { show: figure.style !== 'cells' && (figure.style !== 'lines' || line.x.length <= 20), size: 7, fill: line.color } }))],
            cursor: { drag: { x: isHistory(figure), y: false, setScale: false }, ...figure.style === 'cells' ? { points: { show: false } } : {}, y: figure.style === 'scatter',
                dataIdx: (u, series, at) => {
                    const list = u.data[series];
                    for (let d = 0; d < list.length; d++)
                        for (const i of [at - d, at + d]) if (list[i] !== undefined && list[i] !== null) return i;
                    return at;
                },
                bind: { dblclick: () => () => zoom(name, null) } },
            hooks: { drawAxes: [u => decorate(u, figure, lines)], draw: [u => writeLabels(u, figure)],
                setCursor: [u => follow(u, figure, lines)],
                setSelect: [u => u.select.width > 4 && zoom(name, [u.posToVal(u.select.left, 'x'), u.posToVal(u.select.left + u.select.width, 'x')])] },
        }, tables.length ? uPlot.join(tables) : [range], plot));
        const values = $(name).querySelector('.values');
        if (values.open) writeValues(name, values);
    };
    const refresh = (names = Object.keys(data.figures)) => {
        for (const name of names) stale.add(name);
        for (const name of stale) if (near.has(name)) draw(name);
    };
    // A zoomed figure of a live page has the points of this range from the server.
    const zoom = async (name, range) => {
        if (range) zooms.set(name, range);
        else zooms.delete(name);
        if (live && range) {
            const points = 2 * $(name).clientWidth;
            const reply = await fetch(`figure?name=${name}&from=${range[0]}&to=${range[1]}&points=${points}`).catch(() => null);
            if (reply?.ok && zooms.get(name) === range) finer.set(name, await reply.json());
        } else finer.delete(name);
        setTimeout(() => refresh([name])); // after the event of the chart that is replaced
    };
    const watcher = new IntersectionObserver(entries => {
        for (const { target, isIntersecting } of entries) near[isIntersecting ? 'add' : 'delete'](target.id);
        refresh([]);
    }, { rootMargin: '300px' });
    const observe = () => {
        watcher.disconnect();
        for (const element of document.querySelectorAll('figure')) watcher.observe(element);
    };

    // ---- values under the pointer ----
    const row = (table, cells) => {
        const line = table.insertRow();
        for (const cell of cells) line.insertCell().append(cell);
    };
    const swatch = color => {
        const box = document.createElement('span');
        box.style.cssText = `display:inline-block;width:10px;height:10px;border-radius:5px;background:${color}`;
        return box;
    };
    const follow = (u, figure, lines) => {
        const { left, top, idxs } = u.cursor;
        hint.hidden = true;
        if (left < 0 || top < 0) return;
        const at = u.posToVal(left, 'x'), ticks = figure.at ?? figure.ticks.map((_, i) => i), points = [];
        const tick = ticks.reduce((best, x, i) => Math.abs(x - at) < Math.abs(ticks[best] - at) ? i : best, 0);
        lines.forEach((line, k) => {
            const i = figure.rows.length ? line.order.findIndex(j => line.curve.x[j] === tick && Math.abs(u.valToPos(line.curve.y[j], 'y') - top) < u.bbox.height / devicePixelRatio / figure.rows.length / 2)
                : figure.ticks.length ? line.order.findIndex(j => line.curve.x[j] === tick)
                    : line.x.indexOf(u.data[0][idxs[k + 1]]);
            if (i < 0 || line.faint) return;
            const px = u.valToPos(line.x[i], 'x'), py = u.valToPos(line.y[i], 'y');
            points.push({ line, i, py, away: figure.style === 'scatter' ? Math.hypot(px - left, py - top) : Math.abs(py - top) });
        });
        if (!points.length) return;
        points.sort((a, b) => a.away - b.away);
        const shown = figure.style === 'scatter' || figure.rows.length ? points.slice(0, 1) : points.slice(0, 8).sort((a, b) => a.py - b.py);
        const table = document.createElement('table'), first = shown[0].line.x[shown[0].i], title = document.createElement('strong');
        const number = (line, i) => line.curve.value ? line.curve.value[line.order[i]] : line.y[i];
        title.textContent = figure.rows.length ? `${figure.x} ${figure.ticks[tick]}, ${figure.y} ${figure.rows[shown[0].line.y[shown[0].i]]}`
            : figure.at ? `${figure.x} ${figure.ticks[tick]}` : figure.ticks.length ? figure.ticks[tick] : figure.style === 'scatter' ? `TID ${show(first)}`
            : figure.x === 'updates' ? `update ${show(first)}` : `${show(first)} ${figure.x}`;
        for (const { line, i } of shown) {
            const where = figure.ticks.length || figure.style === 'scatter' || line.x[i] === first ? '' : ` at ${show(line.x[i])}`;
            row(table, [swatch(line.color), line.name + where, show(number(line, i)) + (line.low ? ` (${show(line.low[i])} to ${show(line.high[i])})` : '')]);
        }
        hint.replaceChildren(title, table);
        hint.hidden = false;
        const box = u.over.getBoundingClientRect(), over = hint.getBoundingClientRect(), x = box.left + left, y = box.top + top;
        hint.style.left = `${Math.max(4, Math.min(x + 16, innerWidth - over.width - 8))}px`;
        hint.style.top = `${Math.max(4, y + 16 + over.height > innerHeight ? y - over.height - 12 : y + 16)}px`;
    };

    // ---- table of the values of a figure ----
    const writeValues = (name, details) => {
        const table = document.createElement('table'), median = list => [...list].sort((a, b) => a - b)[Math.floor(list.length / 2)];
        row(table, ['', 'last', 'lowest', 'highest', 'median of 2nd half']);
        for (const line of linesOf(figureOf(name), false)) {
            const y = line.curve.value ?? line.y;
            row(table, [line.name, y.at(-1), Math.min(...y), Math.max(...y), median(y.slice(Math.floor(y.length / 2)))].map(v => typeof v === 'number' ? show(v) : v));
        }
        details.querySelector('table')?.remove();
        details.append(table);
    };
    document.addEventListener('toggle', event => {
        if (event.target.matches?.('.values[open]')) writeValues(event.target.closest('figure').id, event.target);
    }, true);

    // ---- sorting of tables ----
    // Number of a cell: data-value, or the number in "1,234", "<0.001", "p < 0.001", "12.3 ± 0.4" or "98 %". NaN: no value;
    // otherwise the text.
    const cellNumber = /^(?:p\s*)?([<>=≤≥]?)\s*([-+]?(?:\d{1,3}(?:,\d{3})+|\d+)?(?:\.\d+)?(?:e[-+]?\d+)?)\s*(?:%|±.*)?$/i;
    const sortKey = cell => {
        if (cell?.dataset.value !== undefined) return Number(cell.dataset.value);
        const text = (cell?.textContent ?? '').trim().replace(/^\u2212/, '-');
        if (['', '-', '\u2013', '\u2014'].includes(text)) return NaN;
        const [, relation, number] = text.match(cellNumber) ?? [];
        const value = number ? Number(number.replaceAll(',', '')) : NaN;
        if (Number.isNaN(value)) return text;
        const step = Math.abs(value) * 1e-9; // "<0.001" is less than "0.001"
        return relation === '<' ? value - step : relation === '>' ? value + step : value;
    };
    const compareKeys = (a, b) => typeof a !== typeof b ? (typeof a === 'number' ? -1 : 1)
        : typeof a === 'string' ? a.localeCompare(b, 'en', { numeric: true }) : a - b;
    // The first click sorts in ascending order, the second in descending order, the third restores the original order.
    const orders = new WeakMap();
    const sort = (table, column, order) => {
        const body = table.tBodies[0], head = table.tHead.rows[0].cells[column];
        if (!orders.has(table)) orders.set(table, [...body.rows]);
        for (const other of head.parentElement.cells) other.removeAttribute('aria-sort');
        if (order) head.setAttribute('aria-sort', order);
        const rows = orders.get(table).map(row => ({ row, key: sortKey(row.cells[column]) }));
        // Rows without a value come last in both directions.
        if (order)
            rows.sort((a, b) => Number.isNaN(a.key) - Number.isNaN(b.key) || (order === 'descending' ? compareKeys(b.key, a.key) : compareKeys(a.key, b.key)) || 0);
        body.append(...rows.map(entry => entry.row));
        if (table.closest('section')) sorted.set(table.closest('section').id, [column, order]);
    };

    // ---- export ----
    const save = (text, type, name) => {
        const link = document.createElement('a');
        link.href = URL.createObjectURL(new Blob([text], { type }));
        link.download = name;
        link.click();
        setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    };
    const quote = text => /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
    const csv = figure => {
        if (figure.style === 'parallel')
            return [['run', ...figure.ticks], ...figure.curves.map(curve => [nameOf(curve), ...curve.value])]
                .map(line => line.map(cell => quote(String(cell))).join(',')).join('\n') + '\n';
        const x = figure.ticks.length && !figure.x ? 'site' : figure.x || 'x';
        const head = figure.rows.length ? [x, figure.y, figure.score] : [x, figure.y, 'low', 'high'];
        const lines = [['run', ...head]];
        for (const curve of figure.curves)
            curve.x.forEach((at, i) => lines.push([nameOf(curve), tickOf(figure, at), ...figure.rows.length
                ? [figure.rows[curve.y[i]], curve.value[i]] : [curve.y[i], curve.low?.[i] ?? '', curve.high?.[i] ?? '']]));
        return lines.map(line => line.map(cell => quote(String(cell))).join(',')).join('\n') + '\n';
    };

    // ---- controls ----
    const markHidden = () => {
        for (const button of document.querySelectorAll('button.run'))
            button.setAttribute('aria-pressed', String(!hidden.has(data.runs[button.dataset.run].name)));
    };
    document.addEventListener('click', event => {
        const run = event.target.closest('button.run'), head = event.target.closest('thead th'), link = event.target.closest('.contents a');
        const axis = event.target.closest('button.axis'), name = event.target.closest('figure')?.id;
        if (run) {
            const of = data.runs[run.dataset.run].name;
            hidden[hidden.has(of) ? 'delete' : 'add'](of);
            markHidden();
            refresh();
        } else if (head) {
            const next = { ascending: 'descending', descending: null }, now = head.getAttribute('aria-sort');
            sort(head.closest('table'), head.cellIndex, now ? next[now] : 'ascending');
        } else if (axis) {
            logs.set(name + axis.dataset.axis, !isLog(name, axis.dataset.axis));
            refresh([name]);
        } else if (event.target.closest('button.csv')) save(csv(data.figures[name]), 'text/csv', `${name}.csv`);
        else if (link) $(link.hash.slice(1)).querySelector('details.fold')?.setAttribute('open', '');
    });
    $('theme').addEventListener('click', () => {
        const dark = root.dataset.theme ? root.dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
        root.dataset.theme = dark ? 'light' : 'dark';
        refresh();
    });
    for (const id of ['smooth', 'half', 'seeds']) $(id).addEventListener('change', () => refresh());
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => refresh());
    addEventListener('beforeprint', () => Object.keys(data.figures).forEach(draw));
    let width = innerWidth;
    addEventListener('resize', () => width !== innerWidth && (width = innerWidth, refresh()));
    refresh();
    observe();

    // ---- updates from the server ----
    if (!live) return;
    // Replaces what has changed; drawings, folds, order of tables and zoom stay.
    const apply = html => {
        const main = document.querySelector('main'), next = document.createElement('main');
        next.innerHTML = html;
        for (const figure of next.querySelectorAll('figure')) {
            const old = $(figure.id);
            if (!old) continue;
            figure.querySelector('.plot').replaceWith(old.querySelector('.plot'));
            figure.querySelector('.values').replaceWith(old.querySelector('.values'));
        }
        for (const section of next.querySelectorAll('section')) {
            const fold = section.querySelector('.fold'), old = $(section.id)?.querySelector('.fold');
            if (fold && old) fold.open = old.open;
        }
        main.replaceChildren(...next.childNodes);
        data = JSON.parse($('data').textContent);
        markHidden();
        for (const [id, [column, order]] of sorted) if (order && $(id)?.querySelector('thead')) sort($(id).querySelector('table'), column, order);
        for (const name of finer.keys()) zoom(name, [...zooms.get(name)]);
        refresh();
        observe();
    };
    let busy = false, again = false;
    const state = text => { $('state').textContent = text; };
    const update = async () => {
        if (busy) { again = true; return; }
        busy = true;
        const began = performance.now();
        const reply = await fetch('update').catch(() => null), text = reply?.ok ? await reply.text().catch(() => null) : null;
        if (text !== null) apply(text);
        // A slow connection is used for half of the time at most.
        setTimeout(() => { busy = false; if (again) { again = false; update(); } }, Math.max(200, performance.now() - began));
    };
    const connect = () => {
        const events = new EventSource('events');
        events.onopen = () => { state('live'); update(); };
        events.addEventListener('change', update);
        events.onerror = () => {
            state('no connection; trying again');
            if (events.readyState === EventSource.CLOSED) setTimeout(connect, 1000);
        };
    };
    connect();
})();
