// The interactive parts of a page. Text is only set by textContent, never as markup: file names are not trusted.
"use strict";
(() => {
  const SVG = "http://www.w3.org/2000/svg";
  const at = (id) => document.getElementById(id);

  /** An element with attributes and children; strings become text. */
  const make = (tag, attributes = {}, ...children) => {
    const made = tag.startsWith("svg:") ? document.createElementNS(SVG, tag.slice(4)) : document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...children);
    return made;
  };

  // ---- Tables that a click on a heading sorts

  const value = (row, column) => {
    const cell = row.cells[column];
    const text = cell.dataset.value ?? cell.textContent;
    return text !== "" && isFinite(text) ? Number(text) : text;
  };
  for (const table of document.querySelectorAll("table[data-sortable]")) {
    const headings = [...table.tHead.rows[0].cells];
    headings.forEach((heading, column) => {
      const button = make("button", { type: "button" }, ...heading.childNodes);
      heading.replaceChildren(button);
      button.addEventListener("click", () => {
        const rows = [...table.tBodies[0].rows];
        const isNumber = rows.every((row) => typeof value(row, column) === "number");
        const before = heading.getAttribute("aria-sort");
        // The largest numbers come first: users look for these.
        const order = before ? (before === "ascending" ? "descending" : "ascending") : isNumber ? "descending" : "ascending";
        const sign = order === "ascending" ? 1 : -1;
        const compare = isNumber
          ? (a, b) => value(a, column) - value(b, column)
          : (a, b) => String(value(a, column)).localeCompare(String(value(b, column)), "en", { numeric: true });
        rows.sort((a, b) => sign * compare(a, b));
        headings.forEach((other) => other.removeAttribute("aria-sort"));
        heading.setAttribute("aria-sort", order);
        table.tBodies[0].append(...rows);
      });
    });
  }

  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((one) => (one.open = true)));

  if (!at("scored")) return;

  // ---- The page of `tfbnood score`. Images are in the order of their p-values: the first `hot` are flagged.

  const data = JSON.parse(at("scored").textContent);
  const { names, p, scores, rates, calibration } = data;
  const total = names.length;
  const searched = names.map((name) => name.normalize("NFC").toLowerCase());
  let hot = 0; // number of flagged images
  let view = []; // indices of the images that match the search
  let active = 0; // position in `view` of the tile that Tab reaches
  let shown = 0; // position in `view` of the image in the dialog

  const number = (count) => count.toLocaleString("en-US");
  const short = (x, digits) => String(Number(x.toPrecision(digits)));
  const percent = (rate) => `${short(100 * rate, 3)}\u00a0%`;

  const about = (expected) => {
    if (expected < 0.05) return "hardly any";
    return `about ${expected < 0.95 ? Math.floor(10 * expected + 0.5) / 10 : number(Math.floor(expected + 0.5))}`;
  };
  // No p-value lies between two multiples of 1/(n + 1).
  const byChance = (rate) => (total * Math.floor(rate * (calibration + 1) + 1e-9)) / (calibration + 1);
  const flaggedWords = (count) => {
    const verb = count > 1 ? "look" : "looks";
    return `${count ? number(count) : "None"} of ${number(total)} ${total > 1 ? "images" : "image"} ${verb} out of place`;
  };

  // ---- Pictures: base64 in parts of the page that are read when they scroll into view

  const parts = new Map();
  const thumbnail = (index) => {
    const first = index - (index % data.chunk);
    if (!parts.has(first)) {
      const element = at(`thumbnails-${first}`);
      if (!element) return null; // not loaded yet
      parts.set(first, JSON.parse(element.textContent));
      element.remove(); // The text is not needed twice.
    }
    return parts.get(first)[index - first];
  };
  const details = new Map();
  const detail = (index) => {
    if (!details.has(index)) {
      const element = at(`detail-${index}`);
      if (!element) return {};
      details.set(index, JSON.parse(element.textContent));
    }
    return details.get(index);
  };
  // By the first letter in base64: every format starts with different bytes.
  const KINDS = { i: "png", U: "webp", "/": "jpeg" };
  const url = (base64) => `data:image/${KINDS[base64[0]]};base64,${base64}`;

  // ---- Thumbnails: only those in view are in the document

  const grid = at("grid");
  const bar = at("bar");
  const tiles = new Map(); // by position in `view`
  let layout = { columns: 1, width: 1, height: 1, gap: 8 };

  const label = (index) => `${names[index]}, p = ${short(p[index], 2)}${index < hot ? ", flagged" : ""}`;
  const basename = (name) => name.slice(Math.max(name.lastIndexOf("/"), name.lastIndexOf("\\")) + 1) || name;

  const makeTile = (place) => {
    const index = view[place];
    const picture = make("span", { class: "picture" });
    // Long names lose their middle: both ends distinguish files.
    const letters = [...basename(names[index])];
    const end = Math.max(0, letters.length - 8);
    const ends = [letters.slice(0, end), letters.slice(end)].map((one) => make("span", {}, one.join("")));
    const name = make("bdi", { class: "name" }, ...ends);
    const tile = make("button", { type: "button", class: "tile", title: names[index] }, picture, name);
    tile.append(make("span", { class: "p" }, `p = ${short(p[index], 2)}`));
    tile.place = place;
    return tile;
  };
  const dress = (tile) => {
    const { place } = tile;
    const index = view[place];
    tile.classList.toggle("hot", index < hot);
    tile.setAttribute("aria-label", label(index));
    tile.tabIndex = place === active ? 0 : -1;
    const row = Math.floor(place / layout.columns);
    const left = (place % layout.columns) * (layout.width + layout.gap);
    tile.style.transform = `translate(${left}px, ${row * (layout.height + layout.gap)}px)`;
    tile.style.width = `${layout.width}px`;
    tile.style.height = `${layout.height}px`;
    if (!tile.firstChild.firstChild) {
      const base64 = thumbnail(index);
      if (base64) tile.firstChild.append(make("img", { alt: "", decoding: "async", src: url(base64) }));
    }
  };

  const render = () => {
    const step = layout.height + layout.gap;
    const top = grid.getBoundingClientRect().top;
    const first = Math.max(0, Math.floor(-top / step) - 2) * layout.columns;
    const last = Math.min(view.length, (Math.ceil((innerHeight - top) / step) + 2) * layout.columns);
    for (const [place, tile] of tiles) {
      // The focused tile stays, or keys would have no target after scrolling.
      if ((place < first || place >= last) && tile !== document.activeElement) {
        tile.remove();
        tiles.delete(place);
      }
    }
    let next = grid.firstChild;
    while (next && next.place < first) next = next.nextSibling;
    for (let place = first; place < last; place += 1) {
      let tile = tiles.get(place);
      if (!tile) {
        tile = makeTile(place);
        tiles.set(place, tile);
        grid.insertBefore(tile, next); // in order, for screen readers
      } else next = tile.nextSibling;
    }
    tiles.forEach(dress);
    if (!tiles.has(active) && tiles.size) tiles.get(Math.max(first, 0))?.setAttribute("tabindex", "0");
  };

  const place = () => {
    const phone = innerWidth < 576;
    const gap = phone ? 8 : 12;
    const columns = Math.max(2, Math.floor((grid.clientWidth + gap) / ((phone ? 96 : 136) + gap)));
    const width = (grid.clientWidth - gap * (columns - 1)) / columns;
    layout = { columns, width, height: width + 44, gap };
    const rows = Math.ceil(view.length / columns);
    grid.style.height = `${Math.max(0, rows * (layout.height + gap) - gap)}px`;
    render();
  };

  let waiting = false;
  const renderSoon = () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      render();
    });
  };

  const scrollTo = (target) => {
    const top = grid.getBoundingClientRect().top + Math.floor(target / layout.columns) * (layout.height + layout.gap);
    const above = bar.offsetHeight + 12;
    if (top < above) scrollBy(0, top - above);
    else if (top + layout.height > innerHeight - 8) scrollBy(0, top + layout.height - innerHeight + 8);
  };
  const focusOn = (target) => {
    active = Math.min(Math.max(target, 0), view.length - 1);
    if (active < 0) return;
    scrollTo(active);
    render();
    tiles.get(active)?.focus({ preventScroll: true });
  };

  // ---- Which images: search, and flagged ones only

  const search = at("search");
  const only = at("only");
  const found = at("found");

  const filter = () => {
    const terms = search.value.normalize("NFC").toLowerCase().split(/\s+/).filter(Boolean);
    const count = only.getAttribute("aria-pressed") === "true" ? hot : total;
    view = [];
    for (let index = 0; index < count; index += 1) {
      if (terms.every((term) => searched[index].includes(term))) view.push(index);
    }
    active = 0;
    tiles.forEach((tile) => tile.remove());
    tiles.clear();
    const flagged = view.filter((index) => index < hot).length;
    found.textContent = view.length
      ? `${number(view.length)} of ${number(total)} ${total > 1 ? "images" : "image"} shown, most suspicious first; ${number(flagged)} flagged`
      : terms.length
        ? `No ${count < total ? "flagged " : ""}file name contains “${search.value.trim()}”.`
        : "No image is flagged at this rate.";
    place();
  };

  // ---- The rate

  const slider = at("rate");
  const setRate = () => {
    const step = Number(slider.value);
    const rate = rates[step];
    let low = 0;
    let high = total;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (p[middle] <= rate) low = middle + 1;
      else high = middle;
    }
    hot = low;
    const chance = byChance(rate);
    at("flagged").textContent = flaggedWords(hot);
    at("chance").textContent = step === data.start ? data.words : `at a false-alarm rate of ${percent(rate)}; ${about(chance)} would by chance`;
    at("rate-words").textContent = percent(rate);
    at("count").textContent = number(hot);
    at("expected").textContent = about(chance);
    slider.setAttribute("aria-valuetext", `${percent(rate)}, ${number(hot)} flagged, ${about(chance)} by chance`);
    drawHistogram(rate);
  };

  // ---- p-values against uniform

  const histogram = at("histogram");
  const BINS = calibration >= 199 ? 20 : calibration >= 49 ? 10 : 5;
  // A bin includes its right edge; rounding must not move a p-value into the next one.
  const bin = (x) => Math.max(1, Math.ceil(x * BINS - 1e-9)) - 1;
  const counts = new Array(BINS).fill(0);
  p.forEach((x) => (counts[bin(x)] += 1));
  const levels = counts.map((_, index) => {
    const cells = (edge) => Math.floor((edge * (calibration + 1)) / BINS + 1e-9);
    // Exact if the steps of p-values are visible; many steps would make the line jagged.
    const share = calibration < 199 ? (cells(index + 1) - cells(index)) / (calibration + 1) : 1 / BINS;
    // Two sources of randomness: these images, and the calibration images that all p-values share.
    const spread = Math.sqrt((total * share * (1 - share) * (total + calibration + 1)) / (calibration + 2));
    return { mean: total * share, low: Math.max(0, total * share - 2 * spread), high: total * share + 2 * spread };
  });
  const niceStep = (most) => {
    const power = 10 ** Math.floor(Math.log10(most / 5));
    return Math.max(1, [1, 2, 5, 10].map((one) => one * power).find((one) => most / one <= 6));
  };

  const drawHistogram = (rate) => {
    const width = Math.max(260, histogram.clientWidth);
    const height = width < 480 ? 190 : 250;
    const [left, right, top, bottom] = [40, 8, 22, 38];
    const most = Math.max(...counts, ...levels.map((one) => one.high)) || 1;
    const x = (share) => left + share * (width - left - right);
    const y = (count) => height - bottom - (count / most) * (height - top - bottom);
    const svg = make("svg:svg", { viewBox: `0 0 ${width} ${height}`, role: "img" });
    svg.setAttribute("aria-label", `Histogram of ${number(total)} p-values in ${BINS} bins; ${number(counts[0])} lie at or below ${1 / BINS}, where chance puts about ${short(levels[0].mean, 3)}.`);
    for (let tick = 0, step = niceStep(most); tick <= most; tick += step) {
      svg.append(make("svg:line", { class: "axis", x1: left, x2: width - right, y1: y(tick), y2: y(tick) }));
      svg.append(make("svg:text", { x: left - 8, y: y(tick) + 4, "text-anchor": "end" }, number(tick)));
    }
    const along = (key) => levels.map((one, index) => `${x(index / BINS)},${y(one[key])} ${x((index + 1) / BINS)},${y(one[key])}`);
    svg.append(make("svg:polygon", { class: "band", points: [...along("high"), ...along("low").map((pair) => pair.split(" ").reverse().join(" ")).reverse()].join(" ") }));
    counts.forEach((count, index) => {
      const [from, to] = [x(index / BINS) + 1, x((index + 1) / BINS) - 1];
      const edges = `${short(index / BINS, 3)} < p ≤ ${short((index + 1) / BINS, 3)}`;
      // The flagged part of a bar counts images, not a range of the axis.
      const flagged = Math.max(0, Math.min(count, hot - counts.slice(0, index).reduce((a, b) => a + b, 0)));
      const group = make("svg:g", {}, make("svg:title", {}, `${edges}: ${number(count)}, by chance about ${short(levels[index].mean, 3)}`));
      const rect = (kind, low, high) => make("svg:rect", { class: kind, x: from, width: Math.max(0, to - from), y: y(high), height: Math.max(0, y(low) - y(high)) });
      if (count > flagged) group.append(rect("bars", flagged, count));
      if (flagged) group.append(rect("bars hot", 0, flagged));
      svg.append(group);
    });
    svg.append(make("svg:polyline", { class: "uniform", points: along("mean").join(" ") }));
    svg.append(make("svg:line", { class: "threshold", x1: x(rate), x2: x(rate), y1: 2, y2: y(0) }));
    svg.append(make("svg:text", { class: "threshold-label", ...(rate < 0.6 ? { x: x(rate) + 6 } : { x: x(rate) - 6, "text-anchor": "end" }), y: 12 }, `flagged at ${percent(rate)}`));
    for (const tick of [0, 0.25, 0.5, 0.75, 1]) svg.append(make("svg:text", { x: x(tick), y: height - bottom + 17, "text-anchor": "middle" }, String(tick)));
    svg.append(make("svg:text", { x: x(0.5), y: height - 4, "text-anchor": "middle" }, "p-value"));
    histogram.replaceChildren(svg);
  };

  // ---- One picture

  const dialog = at("one");
  const [frame, picture, heat] = [at("frame"), at("picture"), at("heat")];
  const [showWhere, opacity] = [at("show-where"), at("opacity")];

  const drawWhy = (entries) => {
    at("why").hidden = !entries.length;
    const reach = Math.max(3, ...entries.map(([, one]) => Math.abs(one)));
    const lowest = entries.some(([, one]) => one < 0) ? -reach : 0;
    const x = (one) => (100 * (one - lowest)) / (reach - lowest);
    at("bars").replaceChildren(
      ...entries.flatMap(([name, one]) => {
        const [from, to] = [x(Math.min(one, 0)), x(Math.max(one, 0))];
        const svg = make("svg:svg", { viewBox: "0 0 100 12", preserveAspectRatio: "none", "aria-hidden": "true" });
        svg.append(make("svg:line", { class: "axis", x1: x(0), x2: x(0), y1: 0, y2: 12 }));
        svg.append(make("svg:rect", { class: one >= 2 ? "bars hot" : "bars", x: from, width: Math.max(0.5, to - from), y: 2, height: 8 }));
        return [make("span", {}, make("bdi", {}, name)), make("span", {}, svg), make("span", {}, one.toFixed(1))];
      }),
    );
  };

  const dressWhere = () => {
    heat.hidden = !heat.src || !showWhere.checked;
    heat.style.opacity = Number(opacity.value) / 100;
    opacity.disabled = !showWhere.checked;
  };

  const show = (target) => {
    shown = target;
    active = target;
    const index = view[target];
    const more = detail(index);
    const small = thumbnail(index);
    picture.src = more.picture || small ? url(more.picture || small) : "";
    picture.alt = names[index];
    if (more.where) heat.src = url(more.where);
    else heat.removeAttribute("src");
    at("where").hidden = !more.where;
    dressWhere();
    at("name").textContent = names[index];
    at("p").textContent = `p = ${short(p[index], 2)}`;
    at("p").classList.toggle("alarm", index < hot);
    const as = Math.max(0, Math.round(p[index] * (calibration + 1)) - 1);
    const looks = as > 1 ? "look" : "looks";
    at("p-words").textContent = `${as ? number(as) : "None"} of the ${number(calibration)} calibration images ${looks} as strange.`;
    at("facts").textContent = `Score ${short(scores[index], 4)}. Number ${number(index + 1)} of ${number(total)}${index < hot ? ", flagged" : ", not flagged"}.`;
    drawWhy(more.why ?? []);
    at("previous").disabled = target === 0;
    at("next").disabled = target === view.length - 1;
    if (!dialog.open) dialog.showModal();
    dialog.focus(); // not its first button: keys move from picture to picture
  };
  const move = (by) => {
    const target = shown + by;
    if (target >= 0 && target < view.length) show(target);
  };

  picture.addEventListener("load", () => frame.style.setProperty("--ratio", picture.naturalWidth / picture.naturalHeight));
  showWhere.addEventListener("change", dressWhere);
  opacity.addEventListener("input", dressWhere);
  at("previous").addEventListener("click", () => move(-1));
  at("next").addEventListener("click", () => move(1));
  at("close").addEventListener("click", () => dialog.close());
  dialog.addEventListener("close", () => focusOn(shown));
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close(); // the backdrop
  });

  // ---- The list to save

  at("save").addEventListener("click", () => {
    const quoted = (text) => `"${text.replaceAll('"', '""')}"`;
    const lines = names.slice(0, hot).map((name, index) => [quoted(name), p[index], scores[index]].join(","));
    const file = new Blob([["name,p_value,score", ...lines].join("\r\n"), "\r\n"], { type: "text/csv" });
    const link = make("a", { href: URL.createObjectURL(file), download: "flagged.csv" });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  });

  // ---- Keys

  const typing = (target) => target.matches("input, textarea, select");
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -layout.columns, ArrowDown: layout.columns };
    if (dialog.open) {
      if (typing(event.target) || !["ArrowLeft", "ArrowRight"].includes(event.key)) return;
      event.preventDefault();
      move(steps[event.key]);
    } else if (event.key === "/" && event.target !== search) {
      event.preventDefault();
      search.focus();
      search.select();
    } else if (event.target === search && event.key === "Escape") {
      search.value = "";
      filter();
      focusOn(0);
    } else if (event.target === search && event.key === "ArrowDown") {
      event.preventDefault();
      focusOn(0);
    } else if (event.target.matches(".tile")) {
      const from = event.target.place;
      const targets = { Home: 0, End: view.length - 1 };
      let to = event.key in steps ? from + steps[event.key] : targets[event.key];
      if (to === undefined) return;
      event.preventDefault();
      if (to < 0 || to >= view.length) to = event.key === "ArrowDown" ? view.length - 1 : from;
      focusOn(to);
    } else if (event.key in steps && event.target === document.body && grid.getBoundingClientRect().top < innerHeight) {
      event.preventDefault();
      focusOn(active);
    }
  });
  grid.addEventListener("click", (event) => {
    const tile = event.target.closest(".tile");
    if (tile) show(tile.place);
  });

  // ---- Start

  slider.addEventListener("input", () => {
    setRate();
    filter();
  });
  search.addEventListener("input", filter);
  only.addEventListener("click", () => {
    only.setAttribute("aria-pressed", String(only.getAttribute("aria-pressed") !== "true"));
    filter();
  });
  addEventListener("scroll", renderSoon, { passive: true });
  new ResizeObserver(() => {
    place();
    drawHistogram(rates[Number(slider.value)]);
  }).observe(grid);
  addEventListener("DOMContentLoaded", render); // The thumbnails follow the script.
  addEventListener("beforeprint", () => {
    const paper = view.slice(0, 48).map((index) => {
      const small = thumbnail(index);
      const item = make("li", {}, make("bdi", {}, basename(names[index])), make("span", {}, `p = ${short(p[index], 2)}${index < hot ? ", flagged" : ""}`));
      if (small) item.prepend(make("img", { alt: "", decoding: "sync", src: url(small) }));
      return item;
    });
    at("paper").replaceChildren(...paper);
  });

  document.querySelectorAll("[data-scripted]").forEach((one) => (one.hidden = false));
  document.querySelectorAll("details").forEach((one) => (one.open = false));
  setRate();
  filter();
  performance.mark("ready");
})();
