// The script of the page: theme, visibility of runs, sorting, values under the pointer, export of figures as SVG and CSV.
'use strict';
(() => {
    const data = JSON.parse(document.getElementById('data').textContent);
    const hint = document.getElementById('hint');
    const hidden = new Set();
    const svgNames = 'http://www.w3.org/2000/svg';

    // ---- theme ----
    document.getElementById('theme').addEventListener('click', () => {
        const root = document.documentElement;
        const dark = root.dataset.theme ? root.dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
        root.dataset.theme = dark ? 'light' : 'dark';
    });

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

    // ---- runs ----
    for (const button of document.querySelectorAll('button.run')) {
        const run = Number(button.dataset.run);
        const curves = () => document.querySelectorAll('.curve');
        const runsOf = curve => curve.dataset.run.split(' ').map(Number);
        button.addEventListener('click', () => {
            hidden[hidden.has(run) ? 'delete' : 'add'](run);
            for (const same of document.querySelectorAll(`button.run[data-run="${run}"]`))
                same.setAttribute('aria-pressed', String(!hidden.has(run)));
            for (const curve of curves()) curve.classList.toggle('off', runsOf(curve).every(member => hidden.has(member)));
        });
        button.addEventListener('mouseenter', () => {
            for (const curve of curves()) curve.classList.toggle('dim', !runsOf(curve).includes(run));
        });
        button.addEventListener('mouseleave', () => {
            for (const curve of curves()) curve.classList.remove('dim');
        });
    }

    // ---- coordinates ----
    const placeX = (figure, x) => {
        const [left, , right] = figure.frame, [low, high] = figure.range;
        return left + (x - low) / (high - low) * (right - left);
    };
    const placeY = (figure, y) => {
        const [, top, , bottom] = figure.frame, [, , low, high] = figure.range;
        const fraction = figure.log ? Math.log(y / low) / Math.log(high / low) : (y - low) / (high - low);
        return bottom - fraction * (bottom - top);
    };
    // The points of different curves at a tick are spread around it.
    const position = (figure, curve, i, c) => (figure.at ? figure.at[curve.x[i]] : curve.x[i])
        + ((c + 0.5) / figure.curves.length - 0.5) * figure.spread;
    const isHidden = curve => (curve.runs ?? [curve.run]).every(run => hidden.has(run));
    const nameOf = curve => curve.name ?? data.runs[curve.run].name;
    const valueOf = (curve, i) => (curve.value ?? curve.y)[i];

    const nearest = (list, x) => {
        let best = 0;
        for (let i = 1; i < list.length; i++) if (Math.abs(list[i] - x) < Math.abs(list[best] - x)) best = i;
        return best;
    };

    // The cell of a heat map at this position.
    const pickCell = (figure, x, y) => {
        const points = [];
        for (const curve of figure.curves)
            curve.x.forEach((cx, i) => {
                const px = placeX(figure, cx), py = placeY(figure, curve.y[i]);
                if (!isHidden(curve) && Math.abs(cx - x) <= 0.5) points.push({ curve, i, px, py, away: Math.abs(py - y) });
            });
        return points.sort((a, b) => a.away - b.away).slice(0, 1);
    };

    const pick = (figure, x, y) => {
        if (figure.rows.length) return pickCell(figure, x, y);
        const points = [], tick = figure.at ? nearest(figure.at, x) : Math.round(x);
        figure.curves.forEach((curve, c) => {
            if (isHidden(curve) || !curve.x.length) return;
            const i = nearest(curve.x, figure.ticks.length ? tick : x);
            if (figure.ticks.length && curve.x[i] !== tick) return;
            const px = placeX(figure, position(figure, curve, i, c)), py = placeY(figure, curve.y[i]);
            points.push({ curve, i, px, py, away: figure.scatter ? Math.hypot(px - placeX(figure, x), py - y) : Math.abs(py - y) });
        });
        points.sort((a, b) => a.away - b.away);
        return figure.scatter ? points.slice(0, 1) : points.slice(0, 8).sort((a, b) => a.py - b.py);
    };

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
    for (const table of document.querySelectorAll('table')) {
        if (!table.tHead) continue;
        const body = table.tBodies[0], original = [...body.rows];
        // The first click sorts in ascending order, the second in descending order, the third restores the original order.
        const next = { ascending: 'descending', descending: null };
        for (const head of table.tHead.rows[0].cells) {
            head.addEventListener('click', () => {
                const now = head.getAttribute('aria-sort'), order = now ? next[now] : 'ascending';
                for (const other of head.parentElement.cells) other.removeAttribute('aria-sort');
                if (order) head.setAttribute('aria-sort', order);
                const rows = original.map(row => ({ row, key: sortKey(row.cells[head.cellIndex]) }));
                // Rows without a value come last in both directions.
                if (order)
                    rows.sort((a, b) => Number.isNaN(a.key) - Number.isNaN(b.key) || (order === 'descending' ? compareKeys(b.key, a.key) : compareKeys(a.key, b.key)) || 0);
                body.append(...rows.map(entry => entry.row));
            });
        }
    }

    // ---- values under the pointer ----
    const clear = plot => {
        for (const mark of plot.querySelectorAll('.cursor, .dot')) mark.remove();
        hint.hidden = true;
    };
    const add = (svg, name, attributes) => {
        const element = document.createElementNS(svgNames, name);
        for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
        svg.append(element);
    };
    const row = (table, cells) => {
        const line = table.insertRow();
        for (const cell of cells) line.insertCell().append(cell);
    };
    const swatch = color => {
        const box = document.createElement('span');
        box.style.cssText = `display:inline-block;width:10px;height:10px;border-radius:5px;background:${color}`;
        return box;
    };
    const showHint = (figure, points) => {
        const table = document.createElement('table');
        const at = points[0].curve.x[points[0].i];
        const where = figure.rows.length ? `${figure.x} ${figure.ticks[at]}, ${figure.y} ${figure.rows[points[0].curve.y[points[0].i]]}`
            : figure.at ? `${figure.x} ${figure.ticks[at]}` : figure.ticks.length ? figure.ticks[at] : figure.scatter ? `TID ${show(at)}`
            : figure.x === 'updates' ? `update ${show(at)}` : `${show(at)} ${figure.x}`;
        for (const { curve, i } of points) {
            const position = figure.ticks.length || figure.scatter || curve.x[i] === at ? '' : ` at ${show(curve.x[i])}`;
            const bars = curve.low ? ` (${show(curve.low[i])} to ${show(curve.high[i])})` : '';
            row(table, [swatch(data.runs[curve.run].color), nameOf(curve) + position, show(valueOf(curve, i)) + bars]);
        }
        const title = document.createElement('strong');
        title.textContent = where;
        hint.replaceChildren(title, table);
        hint.hidden = false;
    };
    const follow = (plot, figure, event) => {
        const svg = plot.querySelector('svg'), box = svg.getBoundingClientRect();
        const [left, top, right, bottom, width, height] = figure.frame;
        const px = (event.clientX - box.left) / box.width * width, py = (event.clientY - box.top) / box.height * height;
        clear(plot);
        if (px < left - 8 || px > right + 8 || py < top - 8 || py > bottom + 8) return;
        const [low, high] = figure.range;
        const points = pick(figure, low + (px - left) / (right - left) * (high - low), py);
        if (!points.length) return;
        if (!figure.scatter && !figure.ticks.length)
            add(svg, 'line', { class: 'cursor', x1: points[0].px, x2: points[0].px, y1: top, y2: bottom });
        for (const point of points)
            if (point.py >= top - 1 && point.py <= bottom + 1)
                add(svg, 'circle', { class: 'dot', cx: point.px, cy: point.py, r: 5, fill: data.runs[point.curve.run].color });
        showHint(figure, points);
        const over = hint.getBoundingClientRect();
        hint.style.left = `${Math.max(4, Math.min(event.clientX + 16, innerWidth - over.width - 8))}px`;
        hint.style.top = `${Math.max(4, event.clientY + 16 + over.height > innerHeight ? event.clientY - over.height - 12 : event.clientY + 16)}px`;
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
    const tickOf = (figure, x) => String(figure.ticks[x] ?? x);
    const csv = figure => {
        if (figure.parallel)
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
    const legend = (svg, figure, width, height) => {
        const runs = [...new Set(figure.curves.map(curve => curve.run))].filter(run => !hidden.has(run));
        runs.forEach((run, i) => {
            const x = 20 + i % 3 * 205, y = height + 14 + Math.floor(i / 3) * 20;
            add(svg, 'path', { d: `M${x} ${y}h22`, stroke: data.runs[run].color, 'stroke-width': 3, 'stroke-dasharray': data.runs[run].dashes });
            add(svg, 'text', { x: x + 30, y: y + 4, 'font-size': 13, 'font-family': 'sans-serif', fill: '#1d2126' });
            svg.lastChild.textContent = data.runs[run].name;
        });
        return height + 20 + Math.ceil(runs.length / 3) * 20;
    };
    // A standalone image: white background, without hidden runs, with the legend below.
    const standalone = (plot, figure) => {
        const svg = plot.querySelector('svg').cloneNode(true), [, , , , width, height] = figure.frame;
        for (const curve of svg.querySelectorAll('.off, .cursor, .dot')) curve.remove();
        const total = figure.legend ? height : legend(svg, figure, width, height);
        svg.setAttribute('viewBox', `0 0 ${width} ${total}`);
        svg.setAttribute('width', width);
        svg.setAttribute('height', total);
        add(svg, 'rect', { width, height: total, fill: '#ffffff' });
        svg.prepend(svg.lastChild);
        return new XMLSerializer().serializeToString(svg);
    };

    for (const element of document.querySelectorAll('figure')) {
        const figure = data.figures[element.id], plot = element.querySelector('.plot');
        plot.addEventListener('pointermove', event => follow(plot, figure, event));
        plot.addEventListener('pointerdown', event => follow(plot, figure, event));
        plot.addEventListener('pointerleave', () => clear(plot));
        element.querySelector('.svg').addEventListener('click', () => save(standalone(plot, figure), 'image/svg+xml', `${element.id}.svg`));
        element.querySelector('.csv').addEventListener('click', () => save(csv(figure), 'text/csv', `${element.id}.csv`));
    }
})();
