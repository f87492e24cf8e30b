"use strict";
// Filters, sorts, highlights, names what is under the pointer; everything else was drawn before. Text is only ever set as text.
(() => {
  const byId = (id) => document.getElementById(id);
  const all = (selector, inside = document) => [...inside.querySelectorAll(selector)];
  const report = JSON.parse(byId("report-data").textContent);
  const numbers = (text) => text.split(" ").map(Number);
  // Rows of tables, and parts of pictures, stand for tasks: one, or the two that an edge joins.
  const rows = new Map(all(".linked tbody tr").map((row) => [row, numbers(row.dataset.tasks)]));
  const parts = new Map(all(".plot [data-of]").map((part) => [part, numbers(part.dataset.of)]));
  let chosen = new Set();

  // One selection for all views.
  const drawn = (kind, attributes) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", kind);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    return made;
  };
  const show = () => {
    const several = chosen.size > 1;
    const inside = (own) => own.every((task) => chosen.has(task));
    const touched = (own) => own.some((task) => chosen.has(task));
    const among = [...parts.values()].some((own) => own.length > 1 && inside(own));
    for (const [part, own] of parts) part.classList.toggle("chosen", own.length === 1 || (several && among) ? inside(own) : touched(own));
    for (const [row, own] of rows) {
      row.classList.toggle("chosen", inside(own));
      row.querySelector("button").setAttribute("aria-pressed", String(inside(own)));
    }
    document.documentElement.classList.toggle("picked", chosen.size > 0);
    all(".added, .strip").forEach((part) => part.remove());
    for (const task of [...chosen].slice(0, 30)) {
      all(`.tasks use[data-of="${task}"]`).forEach((point) => {
        if (all(`text[data-of="${task}"]`, point.ownerSVGElement).some((name) => name.getBoundingClientRect().width > 0)) return;
        const name = drawn("text", { class: "added", x: point.getAttribute("x"), y: Number(point.getAttribute("y")) - 6 });
        name.textContent = report.names[task];
        point.ownerSVGElement.append(name);
      });
    }
    heats.forEach((heat) => heat.outline());
    const names = [...chosen].slice(0, 8).map((task) => report.names[task]);
    byId("chosen").hidden = chosen.size === 0;
    byId("chosen").querySelector("span").textContent =
      `Selected: ${names.join(", ")}${chosen.size > 8 ? ` and ${chosen.size - 8} more` : ""}`;
  };
  const choose = (tasks) => {
    chosen = new Set(tasks);
    show();
  };
  const pick = (own, event) => {
    const held = own.every((task) => chosen.has(task));
    const others = [...chosen].filter((other) => !own.includes(other));
    const keep = event.shiftKey || event.ctrlKey || event.metaKey ? others : [];
    choose(held && keep.length + own.length === chosen.size ? keep : [...keep, ...own]);
  };
  byId("chosen").querySelector("button").addEventListener("click", () => choose([]));
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") choose([]); });

  // Heat maps: which cell lies under a place, and outlines of the rows and columns of what is selected.
  const heats = all(".plot").filter((plot) => "block" in (report.pictures[plot.id.slice(5)] ?? {})).map((plot) => {
    const heat = report.pictures[plot.id.slice(5)], { rows: tasks, columns, shape: [height, width], block: [tall, wide] } = heat;
    const cells = plot.querySelector(".cells");
    const under = (x, y) => {
      const box = cells.getBoundingClientRect();
      const row = Math.floor((y - box.top) / box.height * height), column = Math.floor((x - box.left) / box.width * width);
      if (!(row >= 0 && row < height && column >= 0 && column < width)) return null;
      const at = Math.floor(row / tall) * Math.ceil(width / wide) + Math.floor(column / wide), place = heat.place === null ? 0 : heat.place[at];
      const i = Math.floor(row / tall) * tall + Math.floor(place / wide), j = Math.floor(column / wide) * wide + place % wide;
      const across = columns === null ? report.features[j] ?? `feature ${j + 1}` : report.names[columns[j]];
      const value = heat.values[at] === null ? "the task itself" : `${heat.label} ${heat.values[at]}`;
      return { own: columns === null || i === j ? [tasks[i]] : [tasks[i], columns[j]], lines: [[report.names[tasks[i]], true], [across, true], [value, false]] };
    };
    const outline = () => {
      const box = cells.getBBox(), strip = (x, y, w, h) => cells.ownerSVGElement.append(drawn("rect", { class: "strip", x, y, width: w, height: h }));
      tasks.forEach((task, k) => {
        if (!chosen.has(task)) return;
        strip(box.x, box.y + box.height * k / height, box.width, box.height / height);
        if (columns !== null) strip(box.x + box.width * k / width, box.y, box.width / width, box.height);
      });
    };
    return { plot, under, outline };
  });

  // What lies under the pointer, or near it: a task comes before the edges that end in it.
  const around = [[0, 0], [3, 0], [-3, 0], [0, 3], [0, -3]];
  const edgeLines = (mark) => {
    const [weight, often] = report.edges[mark], [i, j] = numbers(mark);
    return [[`${report.names[i]} – ${report.names[j]}`, true], [`partial correlation ${weight.toFixed(3)}`, false],
      ...(often === null ? [] : [[`selected in ${Math.round(100 * often)} %`, false]])];
  };
  const pathLines = (mark) => [[numbers(mark).map((task) => report.names[task]).join(" – "), true],
    [`selected in up to ${Math.round(100 * report.pictures.stability[mark])} %`, false]];
  const found = (x, y) => {
    const heat = heats.find(({ plot }) => plot.contains(document.elementFromPoint(x, y)));
    if (heat !== undefined) return heat.under(x, y);
    const near = new Set(around.map(([right, down]) => document.elementFromPoint(x + right, y + down)?.closest("[data-of]")).filter(Boolean));
    const marks = [...new Set([...near].map((part) => part.dataset.of))], task = marks.find((mark) => !mark.includes(" "));
    if (task !== undefined) return { own: [Number(task)], lines: [[report.names[task], true], ...report.facts[task].map((text) => [text, false])] };
    if (!marks.length) return null;
    const path = [...near][0].closest("#plot-stability") !== null;
    return { own: numbers(marks[0]), lines: marks.slice(0, 3).flatMap(path ? pathLines : edgeLines) };
  };
  const tip = byId("tip");
  document.querySelector("main").addEventListener("pointermove", (event) => {
    const { clientX: x, clientY: y } = event, what = event.target.closest(".plot") === null ? null : found(x, y);
    tip.hidden = what === null;
    if (what === null) return;
    tip.replaceChildren(...what.lines.map(([text, bold]) => {
      const line = document.createElement(bold ? "b" : "div");
      line.dir = "auto";
      line.textContent = text;
      return line;
    }));
    tip.style.left = `${Math.max(0, Math.min(x + 14, innerWidth - tip.offsetWidth - 8))}px`;
    tip.style.top = `${y + 18 + tip.offsetHeight > innerHeight ? y - tip.offsetHeight - 12 : y + 18}px`;
  });
  document.addEventListener("pointerleave", () => { tip.hidden = true; });
  document.querySelector("main").addEventListener("click", (event) => {
    const button = event.target.closest("tbody button");
    if (button !== null) pick(rows.get(button.closest("tr")), event);
    else if (event.target.closest(".plot") !== null) {
      const what = found(event.clientX, event.clientY);
      if (what !== null) pick(what.own, event);
    }
  });

  // Sliders: the edges that every view draws.
  const strength = byId("min-weight"), frequency = byId("min-confidence");
  const filter = () => {
    const least = Number(strength.value), often = frequency === null ? 0 : Number(frequency.value);
    const kept = new Set(Object.keys(report.edges).filter((mark) => Math.abs(report.edges[mark][0]) >= least && (report.edges[mark][1] ?? 1) >= often));
    for (const part of parts.keys()) if (part.closest(".edges") !== null) part.classList.toggle("off", !kept.has(part.dataset.of));
    strength.nextElementSibling.textContent = least.toFixed(3);
    if (frequency !== null) frequency.nextElementSibling.textContent = `${Math.round(100 * often)} %`;
    const { total, held } = byId("edge-count").dataset;
    byId("edge-count").textContent = kept.size === Number(total) ? `All ${total} lines shown.`
      : `${kept.size} of ${total} lines shown, the same in all views.${held}`;
  };
  if (strength !== null) {
    for (const slider of [strength, frequency]) if (slider !== null) slider.addEventListener("input", filter);
    // Without fixed steps the arrow keys would jump: move by a fiftieth of the range.
    strength.addEventListener("keydown", (event) => {
      const direction = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 }[event.key];
      if (direction === undefined) return;
      event.preventDefault();
      strength.value = Number(strength.value) + direction * Number(strength.dataset.step);
      filter();
    });
    filter();
  }

  // Tables: search and sort.
  const compare = (a, b) => typeof a === "string" ? a.localeCompare(b, undefined, { numeric: true }) : a - b;
  for (const table of all(".linked")) {
    const body = table.tBodies[0], lines = [...body.rows], { key, many } = table.dataset;
    const search = byId(`${key}-search`);
    search.addEventListener("input", () => {
      const wanted = search.value.trim().toLocaleLowerCase();
      for (const row of lines) row.hidden = !(row.dataset.words ?? (row.querySelector("button").title || row.cells[0].textContent)).toLocaleLowerCase().includes(wanted);
      byId(`${key}-count`).textContent = wanted === "" ? "" : `${lines.filter((row) => !row.hidden).length} of ${lines.length} ${many}`;
    });
    const value = (row, column) => {
      const text = row.cells[column].dataset.value;
      return text === undefined ? row.cells[column].textContent : Number(text);
    };
    for (const button of all("thead button", table)) {
      button.addEventListener("click", () => {
        const heading = button.closest("th"), column = Number(button.dataset.column);
        const falling = heading.getAttribute("aria-sort") === "ascending" || (column > 0 && !heading.hasAttribute("aria-sort"));
        for (const other of heading.parentElement.children) other.removeAttribute("aria-sort");
        heading.setAttribute("aria-sort", falling ? "descending" : "ascending");
        const keyed = lines.map((row) => [value(row, column), row]);
        // What was not measured comes last, whichever way the table is sorted.
        const missing = (each) => Number.isNaN(each) ? 1 : 0;
        keyed.sort(([a], [b]) => missing(a) - missing(b) || (falling ? compare(b, a) : compare(a, b)));
        body.replaceChildren(...keyed.map(([, row]) => row));
      });
    }
  }
  show();
  document.documentElement.dataset.ready = performance.now().toFixed(0);
})();
