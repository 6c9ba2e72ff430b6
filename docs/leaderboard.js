"use strict";
// Fills a page of the leaderboard from BOARD, which the file of data beside the page holds.
(() => {
  const form = document.querySelector(".board-filters");
  const table = document.querySelector("table.board");
  const [MEAN, SE, MEDIAN, N, FAILED, RANK, VALUES] = [0, 1, 2, 3, 4, 5, 6];
  const COLUMNS = [
    ["Method", (cell) => cell.method],
    ["Data set", (cell) => cell.dataset],
    ["Rank", (cell, own) => own[RANK]],
    ["Mean ± SE", (cell, own) => own[MEAN]],
    ["Median", (cell, own) => own[MEDIAN]],
    ["n", (cell, own) => own[N]],
    ["Failed", (cell, own) => own[FAILED]],
    ["Compare"],
    ["Difference", (cell) => differenceOf(cell)?.mean],
    ["Fit, s", (cell) => cell.seconds],
    ["Search", searched],
    ["Family", (cell) => cell.family],
    ["Origin", (cell) => cell.origin],
    ["Benchmark", (cell) => cell.benchmark],
    ["Source"],
  ];
  let chosen = null; // the cell that others are held against
  let sorted = { column: 1, down: false };

  // Fits of the search of a split: settings times folds.
  function searched(cell) {
    return cell.search && cell.search[0] * cell.search[1];
  }

  // Mean over splits of ours minus theirs, with the interval of Nadeau and Bengio: bdl.reports.paired in Python.
  function paired(ours, theirs, score) {
    const [own, other] = [ours, theirs].map(
      (cell) => new Map(cell.at.map((split, i) => [split, cell.scores[score][VALUES][i]])));
    const both = [...own.keys()].filter((split) => other.has(split));
    const values = both.filter((split) => own.get(split) !== null && other.get(split) !== null)
      .map((split) => own.get(split) - other.get(split));
    const n = values.length;
    if (!n) return null;
    const mean = values.reduce((sum, value) => sum + value, 0) / n;
    const found = { n, mean, low: null, high: null, verdict: "undecided" };
    if (n < 2 || ours.overlap === null) return found;
    const variance = values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / (n - 1);
    const half = BOARD.quantiles[n - 2] * Math.sqrt(variance * (1 / n + ours.overlap));
    [found.low, found.high] = [mean - half, mean + half];
    const direction = BOARD.scores[score][1];
    const open = n < BOARD.fewest || (found.low <= 0 && found.high >= 0);
    if (open || !["lower", "higher"].includes(direction)) return found;
    const lost = (mine, yours) => both.some((split) => mine.get(split) === null && yours.get(split) !== null);
    if ((found.high < 0) === (direction === "lower")) found.verdict = lost(own, other) ? "undecided" : "better";
    else found.verdict = lost(other, own) ? "undecided" : "worse";
    return found;
  }

  function differenceOf(cell) {
    const score = form.score.value;
    const comparable = chosen && cell !== chosen && cell.group === chosen.group && chosen.scores[score];
    return comparable ? paired(cell, chosen, score) : null;
  }

  // A number with the decimals that its standard error (or, without one, four digits) asks for.
  function number(value, se) {
    if (value === null) return "–";
    const size = Math.abs(value);
    if (size >= 1e5 || (size && size < 1e-4)) return value.toExponential(2).replace("-", "−");
    const place = Math.floor(Math.log10(se || size || 1));
    const decimals = Math.min(Math.max(se ? 1 - place : 3 - place, 0), 6);
    return value.toFixed(decimals).replace("-", "−");
  }

  function element(name, properties = {}, ...children) {
    const made = Object.assign(document.createElement(name), properties);
    made.append(...children);
    return made;
  }

  function source(cell) {
    const summary = element("summary", { ariaLabel: `Source of ${cell.method} on ${cell.dataset}` }, "source");
    const about = BOARD.sources[cell.benchmark];
    if (!about) return element("details", {}, summary, cell.remark);
    const links = Object.entries(about.links).flatMap(([text, path]) =>
      [element("a", { href: `../../${path}` }, text), " · "]);
    const named = (what, hash) => element("span", { title: hash }, `${what} ${hash.slice(0, 10)}`);
    const commits = [named("commit", cell.commit ?? "unknown")];
    const dataset = cell.dataset.replace(/ .*/, "");
    const command = `${about.command} --dataset ${dataset} --method ${cell.method}`;
    return element("details", {}, summary, ...links, ...commits, element("code", {}, command));
  }

  function choice(cell) {
    const button = element("button", { type: "button", ariaPressed: String(cell === chosen),
      ariaLabel: `Differences from ${cell.method} on ${cell.dataset}` }, cell === chosen ? "chosen" : "compare");
    button.id = `choose-${BOARD.cells.indexOf(cell)}`;
    button.addEventListener("click", () => {
      chosen = cell === chosen ? null : cell;
      draw();
      document.getElementById(button.id)?.focus({ preventScroll: true });
    });
    return button;
  }

  function difference(cell) {
    const found = differenceOf(cell);
    if (!found) return element("td", { className: "number" }, "–");
    const { n, mean, low, high, verdict } = found;
    const half = low === null ? null : (high - low) / 2;
    const interval = low === null ? "" : ` (${number(low, half)} to ${number(high, half)})`;
    const ends = low === null ? "" : ` ${low} ${high}`;
    return element("td", { className: `number ${verdict}`, title: `n = ${n}: ${mean}${ends}` },
      number(mean, half) + interval + (verdict === "undecided" ? "" : ` ${verdict}`));
  }

  function mark([text, explanation]) {
    return element("span", { className: "mark", title: explanation }, text);
  }

  function row(cell) {
    const own = cell.scores[form.score.value];
    const [mean, se] = [own[MEAN], own[SE]];
    const text = cell.shown?.[form.score.value] ?? number(mean, se) + (se === null ? "" : ` ± ${number(se, se)}`);
    const numeric = (value, title) => element("td", { className: "number", title: title ?? "" }, value ?? "–");
    return element("tr", { className: [cell.origin === "printed elsewhere" ? "elsewhere" : "",
      cell === chosen ? "chosen" : ""].join(" ") },
    element("th", { scope: "row" }, cell.method, ...cell.marks.map(mark)), element("td", {}, cell.dataset), numeric(own[RANK]),
    numeric(text, mean === null ? "" : String(mean)), numeric(number(own[MEDIAN], se)), numeric(own[N]),
    numeric(own[FAILED]), element("td", {}, cell.at.length ? choice(cell) : ""), difference(cell),
    numeric(number(cell.seconds, null)), numeric(searched(cell) ? cell.search.join(" × ") : cell.search && "none"),
    element("td", {}, cell.family), element("td", {}, cell.origin),
    element("td", {}, cell.benchmark), element("td", {}, source(cell)));
  }

  function head() {
    const cells = COLUMNS.map(([name, value], column) => {
      if (!value) return element("th", { scope: "col" }, name);
      const button = element("button", { type: "button", id: `sort-${column}` }, name);
      button.addEventListener("click", () => {
        sorted = { column, down: sorted.column === column && !sorted.down };
        draw();
        document.getElementById(button.id).focus({ preventScroll: true });
      });
      const direction = sorted.down ? "descending" : "ascending";
      return element("th", { scope: "col", ariaSort: sorted.column === column ? direction : "none" }, button);
    });
    return element("thead", {}, element("tr", {}, ...cells));
  }

  // Ascending; what has no value comes last in both directions, and ties stand by rank and mean.
  function order(first, second) {
    const score = form.score.value;
    const by = (column, down) => {
      const [a, b] = [first, second].map((cell) => COLUMNS[column][1](cell, cell.scores[score]) ?? null);
      if (a === null || b === null) return (a === null) - (b === null);
      return (typeof a === "string" ? a.localeCompare(b) : a - b) * (down ? -1 : 1);
    };
    return by(sorted.column, sorted.down) || by(1) || by(2) || by(3, BOARD.scores[score][1] === "higher");
  }

  function draw() {
    const wanted = form.text.value.toLowerCase();
    const words = ({ method, dataset, family, origin, benchmark, marks }) =>
      [method, dataset, family, origin, benchmark, ...marks.flat()].join(" ").toLowerCase();
    const within = (field, value) => {
      const most = form.elements[field].value;
      return !most || (value !== null && value <= Number(most));
    };
    const shown = BOARD.cells.filter((cell) => cell.scores[form.score.value]
      && ["dataset", "family", "origin"].every((field) => ["", cell[field]].includes(form.elements[field].value))
      && within("seconds", cell.seconds) && within("searched", searched(cell))
      && words(cell).includes(wanted));
    table.replaceChildren(element("caption", {}, BOARD.scores[form.score.value][0]), head(),
      element("tbody", {}, ...shown.sort(order).map(row)));
    const against = chosen ? `differences from ${chosen.method} on ${chosen.dataset}, with 95 % intervals`
      : "press “compare” in a row for paired differences from it";
    document.querySelector(".board-status").textContent = `${shown.length} rows; ${against}.`;
  }

  for (const [name, [label]] of Object.entries(BOARD.scores)) form.score.append(new Option(label, name));
  for (const field of ["dataset", "family", "origin"]) {
    const values = new Set(BOARD.cells.map((cell) => cell[field]));
    form.elements[field].append(...[...values].map((value) => new Option(value, value)));
  }
  form.addEventListener("input", draw);
  draw();
})();
