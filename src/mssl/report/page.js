"use strict";
// Filters, sorts and highlights; everything else was computed before. Text is only ever set as text.
(async () => {
  const byId = (id) => document.getElementById(id);
  const report = JSON.parse(byId("report-data").textContent);
  // Rows of tables select tasks: one, two, or a community.
  const rows = new Map([...document.querySelectorAll(".linked tbody tr")].map((row) => [row, row.dataset.tasks.split(" ").map(Number)]));
  let bokeh = null, views = [];
  if (report.items.length) {
    views = (await Bokeh.embed.embed_items(report.docs, report.items)).flatMap((manager) => [...manager])
      .filter((view) => view.model.id in report.items[0].roots);
    bokeh = Bokeh.documents[0];
  }
  const model = (name) => (bokeh === null ? null : bokeh.get_model_by_name(name));
  const tasks = model("tasks"), edges = model("edges"), path = model("stability");
  let chosen = new Set();

  // One selection for all views: the source of the tasks holds it, or, without figures, the table alone.
  const incident = (source) => {
    const { i, j } = Object.fromEntries(["i", "j"].map((key) => [key, Array.from(source.get_column(key))]));
    const several = chosen.size > 1;
    const near = (k) => (several ? chosen.has(i[k]) && chosen.has(j[k]) : chosen.has(i[k]) || chosen.has(j[k]));
    const found = i.map((_, k) => k).filter(near);
    return found.length || !several ? found : i.map((_, k) => k).filter((k) => chosen.has(i[k]) || chosen.has(j[k]));
  };
  const show = () => {
    for (const [row, own] of rows) {
      const all = own.every((task) => chosen.has(task));
      row.classList.toggle("chosen", all);
      row.querySelector(".pick").setAttribute("aria-pressed", String(all));
    }
    for (const source of [edges, path]) if (source !== null) source.selected.indices = incident(source);
    const names = [...chosen].slice(0, 8).map((task) => report.names[task]);
    byId("chosen").hidden = chosen.size === 0;
    byId("chosen").querySelector("span").textContent =
      `Selected: ${names.join(", ")}${chosen.size > 8 ? ` and ${chosen.size - 8} more` : ""}`;
  };
  const choose = (indices) => {
    const same = indices.length === chosen.size && indices.every((task) => chosen.has(task));
    if (same) return;
    chosen = new Set(indices);
    if (tasks !== null) tasks.selected.indices = indices;
    show();
  };
  if (tasks !== null) tasks.selected.properties.indices.change.connect(() => choose([...tasks.selected.indices]));
  byId("chosen").querySelector("button").addEventListener("click", () => choose([]));
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") choose([]); });
  document.querySelector("main").addEventListener("click", (event) => {
    const button = event.target.closest("button.pick");
    if (button === null) return;
    const own = rows.get(button.closest("tr")), all = own.every((task) => chosen.has(task));
    const others = [...chosen].filter((other) => !own.includes(other));
    const keep = event.shiftKey || event.ctrlKey || event.metaKey ? others : [];
    choose(all && keep.length + own.length === chosen.size ? keep : [...keep, ...own]);
  });

  // Sliders: the edges that every view draws.
  const strength = byId("min-weight"), frequency = byId("min-confidence");
  const filter = () => {
    const weight = Array.from(edges.get_column("weight")), confidence = Array.from(edges.get_column("confidence"));
    const least = Number(strength.value), often = frequency === null ? 0 : Number(frequency.value);
    const kept = [];
    weight.forEach((value, k) => { if (Math.abs(value) >= least && confidence[k] >= often) kept.push(k); });
    model("edge-filter").indices = kept;
    strength.nextElementSibling.textContent = least.toFixed(3);
    if (frequency !== null) frequency.nextElementSibling.textContent = `${Math.round(100 * often)} %`;
    const { total, held } = byId("edge-count").dataset;
    const all = kept.length === Number(total);
    byId("edge-count").textContent = all
      ? `All ${total} edges shown.`
      : `${kept.length} of ${total} edges shown, the same in all views.${held}`;
  };
  if (strength !== null && edges !== null) {
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

  // Beside the pointer: names and numbers.
  const tip = byId("tip");
  let pointer = [0, 0];
  document.addEventListener("pointermove", (event) => { pointer = [event.clientX, event.clientY]; }, { capture: true, passive: true });
  const tell = (lines) => {
    tip.replaceChildren(...lines.map(([text, bold]) => {
      const line = document.createElement(bold ? "b" : "div");
      line.dir = "auto";
      line.textContent = text;
      return line;
    }));
    tip.hidden = false;
    const [x, y] = pointer;
    tip.style.left = `${Math.min(x + 14, innerWidth - tip.offsetWidth - 8)}px`;
    tip.style.top = `${y + 18 + tip.offsetHeight > innerHeight ? y - tip.offsetHeight - 12 : y + 18}px`;
  };
  // What lies under the pointer, by drawing: a task comes before the edges that end in it.
  const under = new Map();
  const near = (source) => [...under].filter(([, found]) => found.source === source).flatMap(([, found]) => found.indices);
  const column = (source, name, k) => source.get_column(name)[k];
  const edgeLines = (k) => {
    const often = byId("min-confidence") === null ? [] : [[`selected in ${Math.round(100 * column(edges, "confidence", k))} %`, false]];
    return [[`${column(edges, "first", k)} – ${column(edges, "second", k)}`, true],
      [`partial correlation ${column(edges, "weight", k).toFixed(3)}`, false], ...often];
  };
  const pathLines = (k) => [[column(path, "edge", k), true], [`selected in up to ${Math.round(100 * column(path, "top", k))} %`, false]];
  const inspect = () => {
    const [task, edge, line] = [tasks, edges, path].map((source) => source === null ? [] : near(source));
    if (task.length) tell([[report.names[task[0]], true], ...report.facts[task[0]].map((text) => [text, false])]);
    else if (edge.length) tell(edge.slice(-3).reverse().flatMap(edgeLines));
    else if (line.length) tell(line.slice(-3).reverse().flatMap(pathLines));
    else tip.hidden = true;
  };
  for (const source of [tasks, edges, path]) {
    if (source !== null) source.inspect.connect(([renderer]) => {
      under.set(renderer.id, { source, indices: [...source.inspected.indices] });
      inspect();
    });
  }

  // Heat maps: name the cell under the pointer, select its tasks on a click, switch what the colours show.
  const heatMap = (key, heat) => {
    const figure = model(`${key}-plot`);
    const places = new Map(heat.layers.map(({ key: layer, place }) => [layer, place === null ? null
      : new Uint16Array(Uint8Array.from(atob(place), (letter) => letter.charCodeAt(0)).buffer)]));
    let layer = heat.layers[0];
    const [tall, wide] = heat.block, columns = Math.ceil(heat.shape[1] / wide), lines = heat.height / tall;
    const cell = ({ x, y }) => {
      const row = Math.floor(heat.height - y), column = Math.floor(x);
      if (!(row >= 0 && row < heat.shape[0] && column >= 0 && column < heat.shape[1])) return null;
      const at = Math.floor(row / tall) * columns + Math.floor(column / wide);
      const place = places.get(layer.key), inside = place === null ? 0 : place[at];
      const image = model(`${key}-${layer.key}`).get_column("image")[0];
      // The image is stored from its lowest row upwards.
      const value = image[(lines - 1 - Math.floor(row / tall)) * columns + Math.floor(column / wide)];
      return {
        row: Math.floor(row / tall) * tall + Math.floor(inside / wide),
        column: Math.floor(column / wide) * wide + (inside % wide),
        value,
      };
    };
    const across = (column) => heat.across === "tasks" ? report.names[heat.columns[column]]
      : heat.features[column] ?? `feature ${column + 1}`;
    figure.on_event("mousemove", (event) => {
      const found = cell(event);
      if (found === null) { tip.hidden = true; return; }
      const value = Number.isNaN(found.value) ? "the task itself" : `${layer.label} ${found.value.toPrecision(3)}`;
      tell([[report.names[heat.rows[found.row]], true], [across(found.column), true], [value, false]]);
    });
    figure.on_event("mouseleave", () => { tip.hidden = true; });
    figure.on_event("tap", (event) => {
      const found = cell(event);
      if (found === null) return;
      const picked = [heat.rows[found.row]];
      if (heat.across === "tasks" && found.column !== found.row) picked.push(heat.columns[found.column]);
      choose(picked);
    });
    for (const button of document.querySelectorAll(`input[name="${key}-layer"]`)) {
      button.addEventListener("change", () => {
        layer = heat.layers.find((each) => each.key === button.value);
        for (const each of heat.layers) {
          for (const part of ["image", "bar"]) model(`${key}-${each.key}-${part}`).visible = each === layer;
        }
      });
    }
  };
  for (const [key, heat] of Object.entries(report.heats)) heatMap(key, heat);

  // Tables: search and sort.
  const compare = (a, b) => typeof a === "string" ? a.localeCompare(b, undefined, { numeric: true }) : a - b;
  for (const table of document.querySelectorAll(".linked")) {
    const body = table.tBodies[0], all = [...body.rows], { key, many } = table.dataset;
    const search = byId(`${key}-search`);
    search.addEventListener("input", () => {
      const wanted = search.value.trim().toLocaleLowerCase();
      let hits = 0;
      for (const row of all) {
        const hit = (row.dataset.words ?? row.querySelector(".pick").title).toLocaleLowerCase().includes(wanted);
        row.hidden = !hit;
        hits += hit;
      }
      byId(`${key}-count`).textContent = wanted === "" ? "" : `${hits} of ${all.length} ${many}`;
    });
    const value = (row, column) => {
      const text = row.cells[column].dataset.value;
      return text === undefined ? row.cells[column].textContent : Number(text);
    };
    for (const button of table.querySelectorAll("thead button")) {
      button.addEventListener("click", () => {
        const heading = button.closest("th"), column = Number(button.dataset.column);
        const falling = heading.getAttribute("aria-sort") === "ascending" || (column > 0 && !heading.hasAttribute("aria-sort"));
        for (const other of heading.parentElement.children) other.removeAttribute("aria-sort");
        heading.setAttribute("aria-sort", falling ? "descending" : "ascending");
        const keyed = all.map((row) => [value(row, column), row]);
        // What was not measured comes last, whichever way the table is sorted.
        const missing = (each) => Number.isNaN(each) ? 1 : 0;
        keyed.sort(([a], [b]) => missing(a) - missing(b) || (falling ? compare(b, a) : compare(a, b)));
        body.replaceChildren(...keyed.map(([, row]) => row));
      });
    }
  }

  // Narrow screens get narrower drawings, with the names that have room there.
  const whole = new Map(views.map((view) => [view, [view.model.frame_width, view.model.frame_height]]));
  const fit = () => {
    for (const [view, [width, height]] of whole) {
      const figure = view.model, beside = view.bbox.width - view.frame.bbox.width;
      const room = byId(report.items[0].roots[figure.id]).clientWidth - beside;
      const across = Math.floor(Math.min(width, Math.max(room, 140)));
      const even = figure.tags[1] === "even";
      if (across !== figure.frame_width) figure.setv({ frame_width: across, frame_height: even ? Math.round(height * across / width) : height });
      for (const each of figure.renderers) {
        if (each.tags.includes("wide")) each.visible = across > 0.75 * width;
        if (each.tags.includes("narrow")) each.visible = across <= 0.75 * width;
      }
      for (const axis of figure.below) {
        if (axis.tags.includes("names")) axis.visible = across >= 9 * (axis.ticker.ticks.length || 1);
      }
    }
  };

  // Paper is narrower than the figures: print pictures of them, which shrink to fit.
  addEventListener("beforeprint", () => {
    for (const view of views) {
      const picture = document.createElement("img");
      picture.className = "printed";
      picture.alt = "";
      picture.src = view.export("auto", true).canvas.toDataURL();
      byId(report.items[0].roots[view.model.id]).append(picture);
    }
  });
  addEventListener("afterprint", () => document.querySelectorAll("img.printed").forEach((picture) => picture.remove()));

  const frame = () => new Promise((done) => { requestAnimationFrame(done); });
  const idle = () => new Promise((done) => { if (bokeh === null || bokeh.is_idle) done(); else bokeh.idle.connect(done); });
  await idle();
  fit();
  addEventListener("resize", fit);
  await frame();
  await idle();
  document.documentElement.dataset.ready = performance.now().toFixed(0);
})().catch((error) => {
  console.error(error);
  document.documentElement.dataset.failed = String(error);
});
