// The drawing of a graph, folded and unfolded, panned and zoomed. Python wrote the data: boxes, the layers of every group, widths.
// What places boxes here is what irscope/report/layered.py (columns) and boxes.py (scene) do; a test holds the two equal.
"use strict";
function irscopeGraph(root) {
  const data = JSON.parse(root.querySelector("script[type='application/json']").textContent);
  const svg = root.querySelector("svg"), facts = root.querySelector(".graph-facts");
  const NS = "http://www.w3.org/2000/svg", M = data.measure, boxes = data.boxes, groups = data.groups;
  const opened = new Set(data.opened);
  const has = (object, key) => Object.prototype.hasOwnProperty.call(object, key);

  function wanted(joined, middle, now) {
    if (!joined.length) return [now, 0.05];
    const places = joined.map(([other, weight, shift]) => [middle[other] + shift, weight]).sort((a, b) => a[0] - b[0] || a[1] - b[1]);
    let total = 0, sum = 0;
    for (const one of places) total += one[1];
    if (places.length === 1) return places[0];
    for (let at = 0; at < places.length; at++) {
      sum += places[at][1];
      if (sum === total / 2) return [(places[at][0] + places[at + 1][0]) / 2, total];
      if (sum > total / 2) return [places[at][0], total];
    }
  }

  function settle(row, room, joined, middle) {
    const blocks = [];
    row.forEach((number, at) => {
      let [place, weight] = wanted(joined[number], middle, middle[number]);
      let total = (place - room[at]) * weight, members = 1;
      while (blocks.length && blocks[blocks.length - 1][0] * weight >= total * blocks[blocks.length - 1][1]) {
        const [before, heavy, many] = blocks.pop();
        total += before; weight += heavy; members += many;
      }
      blocks.push([total, weight, members]);
    });
    let at = 0;
    for (const [total, weight, members] of blocks)
      for (const end = at + members; at < end; at++) middle[row[at]] = total / weight + room[at];
  }

  function columns(group, width, shift) {
    const size = width.length, middle = new Array(size).fill(0);
    const above = Array.from({length: size}, () => []), below = Array.from({length: size}, () => []);
    group.segments.forEach(one => {
      const [upper, lower] = one, weight = [32, 1, 64][(upper >= group.count) + (lower >= group.count)], [begin, end] = shift(one);
      above[lower].push([upper, weight, begin - end]);
      below[upper].push([lower, weight, end - begin]);
    });
    const room = group.rows.map(row => {
      let left = 0;
      return row.map((number, at) => {
        if (at) left += (width[row[at - 1]] + width[number]) / 2 + M.gap;
        middle[number] = left;
        return left;
      });
    });
    for (let round = 0; round < 8; round++) {
      for (let at = 1; at < group.rows.length; at++) settle(group.rows[at], room[at], above, middle);
      for (let at = group.rows.length - 2; at >= 0; at--) settle(group.rows[at], room[at], below, middle);
    }
    let left = Infinity;
    for (let number = 0; number < size; number++) left = Math.min(left, middle[number] - width[number] / 2);
    return middle.map(one => one - left);
  }

  function sizeOf(number, rooms) {
    const room = rooms.get(number);
    return room ? [room.width, room.height] : [boxes[number].width, M.height];
  }

  function port(group, rooms, member, entry, exit) {
    const inner = member < group.children.length ? rooms.get(group.children[member]) : undefined;
    if (!inner) return 0;
    const own = inner.group;
    let at = own.entries.indexOf(entry);
    if (at >= 0) return inner.middle[own.children.length + at] - inner.width / 2;
    at = own.exits.indexOf(exit);
    return at >= 0 ? inner.middle[own.children.length + own.entries.length + at] - inner.width / 2 : 0;
  }

  function layOut(number, rooms) {
    const group = groups[number], sizes = group.children.map(child => sizeOf(child, rooms)), bends = group.layer.length - sizes.length;
    const width = sizes.map(one => one[0]).concat(new Array(bends).fill(M.bend));
    const middle = columns(group, width, ([upper, lower, trunk]) => {
      const [source, lane] = group.trunks[trunk];
      return [upper === source ? port(group, rooms, upper, -1, lane) : 0, lower < group.count ? port(group, rooms, lower, source, -1) : 0];
    });
    let inner = 0;
    middle.forEach((one, at) => { inner = Math.max(inner, one + width[at] / 2); });
    const room = {group, top: [], deep: [], width: Math.max(inner + 2 * M.border, boxes[number].width)};
    room.middle = middle.map(one => one + (room.width - inner) / 2);
    let y = M.heading;
    group.rows.forEach(row => {
      let high = 0;
      row.forEach(one => { if (one < sizes.length) high = Math.max(high, sizes[one][1]); });
      const ports = row.every(one => one >= sizes.length && one < group.count);
      room.top.push(ports && !room.top.length ? 0 : y);
      room.deep.push(ports ? 0 : high);
      y += ports && room.top.length === 1 ? M.border : high + M.rows;
    });
    room.height = group.rows.length ? y - M.rows + M.border : M.heading + M.border;
    if (group.exits.length) { room.height = y - M.rows; room.top[room.top.length - 1] = room.height; }
    return room;
  }

  function spread(room, rooms) {
    const group = room.group, children = group.children, into = new Map(), out = new Map();
    const begins = [], ends = [];
    group.segments.forEach(([upper, lower, trunk], at) => {
      const [source, lane] = group.trunks[trunk];
      begins.push(upper === source ? port(group, rooms, upper, -1, lane) : 0);
      ends.push(lower < group.count ? port(group, rooms, lower, source, -1) : 0);
      if (lower < children.length && !rooms.has(children[lower])) into.set(lower, (into.get(lower) || []).concat(at));
      if (upper < children.length && !rooms.has(children[upper])) {
        if (!out.has(upper)) out.set(upper, new Map());
        out.get(upper).set(trunk, (out.get(upper).get(trunk) || []).concat(at));
      }
    });
    into.forEach((list, number) => {
      const step = Math.min(M.gap, boxes[children[number]].width * 0.7 / list.length);
      list.sort((a, b) => room.middle[group.segments[a][0]] - room.middle[group.segments[b][0]]);
      list.forEach((at, place) => { ends[at] = (place - (list.length - 1) / 2) * step; });
    });
    out.forEach((trunks, number) => {
      const step = Math.min(M.gap * 2, boxes[children[number]].width * 0.7 / trunks.size);
      const first = trunk => Math.min(...trunks.get(trunk).map(at => room.middle[group.segments[at][1]]));
      [...trunks.keys()].sort((a, b) => first(a) - first(b)).forEach((trunk, place) => {
        trunks.get(trunk).forEach(at => { begins[at] = (place - (trunks.size - 1) / 2) * step; });
      });
    });
    return [begins, ends];
  }

  function scene() {
    const order = [], rooms = new Map(), todo = [0];
    while (todo.length) {
      const number = todo.pop();
      if (!opened.has(number) || !has(groups, number)) continue;
      order.push(number);
      todo.push(...groups[number].children.slice().reverse());
    }
    for (let at = order.length - 1; at >= 0; at--) rooms.set(order[at], layOut(order[at], rooms));
    const left = {0: 0}, top = {0: 0}, placed = [], lines = [];
    for (const number of order) {
      const room = rooms.get(number), group = room.group, children = group.children, dx = left[number], dy = top[number];
      placed.push({number, x: dx, y: dy, width: room.width, height: room.height, open: true});
      children.forEach((child, at) => {
        const [width, height] = sizeOf(child, rooms), layer = group.layer[at];
        const x = left[child] = dx + room.middle[at] - width / 2;
        const y = top[child] = dy + room.top[layer] + (room.deep[layer] - height) / 2;
        if (!rooms.has(child)) placed.push({number: child, x, y, width, height, open: false});
      });
      const [begins, ends] = spread(room, rooms);
      const border = (member, lower) => {
        const layer = group.layer[member];
        let begin = room.top[layer], end = begin + room.deep[layer];
        if (member < children.length) {
          const high = sizeOf(children[member], rooms)[1];
          begin += (room.deep[layer] - high) / 2;
          end = begin + high;
        }
        return dy + (lower ? end : begin);
      };
      group.segments.forEach(([upper, lower, trunk, back], at) => {
        const [source, , label, title] = group.trunks[trunk], from = group.layer[upper], to = group.layer[lower];
        const x0 = dx + room.middle[upper] + begins[at], x1 = dx + room.middle[lower] + ends[at];
        const inner = lower < children.length ? rooms.get(children[lower]) : undefined;
        lines.push({
          points: [[x0, border(upper, true)], [x0, dy + room.top[from] + room.deep[from]], [x1, dy + room.top[to]],
            [x1, lower < group.count ? border(lower, false) : dy + room.top[to] + room.deep[to]]],
          head: lower < children.length && (!inner || !inner.group.entries.includes(source)),
          label: upper < children.length && upper === source && !rooms.has(children[upper]) ? label : "", title, back: !!back,
        });
      });
    }
    const whole = rooms.get(0);
    return {placed, lines, width: whole ? whole.width : 0, height: whole ? whole.height : 0};
  }

  function make(name, attributes, text) {
    const made = document.createElementNS(NS, name);
    for (const key in attributes) made.setAttribute(key, attributes[key]);
    if (text !== undefined) made.textContent = text;
    return made;
  }

  const n = value => (Math.round(value * 10) / 10).toString();
  function draw() {
    const found = scene(), layer = make("g", {});
    const labels = [], said = new Set();
    for (const one of found.placed) {
      const box = boxes[one.number], group = has(groups, one.number), item = make("g", {
        class: `box ${box.kind}${one.open ? " open" : ""}`, "data-box": one.number, tabindex: "0", role: "button",
        "aria-label": `${box.name} ${box.detail}`, ...(group ? {"aria-expanded": String(one.open)} : {}),
      });
      item.append(make("title", {}, box.facts.map(fact => fact.join(": ")).join("\n")));
      item.append(make("rect", {x: n(one.x), y: n(one.y), width: n(one.width), height: n(one.height), rx: box.kind === "input" || box.kind === "output" ? 14 : 4,
        fill: one.open ? "#ffffff" : box.fill}));
      if (one.open) {
        item.append(make("rect", {class: "heading", x: n(one.x), y: n(one.y), width: n(one.width), height: "20", fill: "#e8ecf1"}));
        item.append(make("text", {class: "name", x: n(one.x + 8), y: n(one.y + 14)}, `− ${box.label}${box.detail ? `  ${box.detail}` : ""}`));
      } else {
        const x = n(one.x + one.width / 2);
        item.append(make("text", {class: "name", x, y: n(one.y + 15), "text-anchor": "middle"}, `${group ? "+ " : ""}${box.label}`));
        item.append(make("text", {x, y: n(one.y + 29), "text-anchor": "middle"}, box.under));
        let at = one.x + 4;
        for (const [fill, share] of box.bars) {
          item.append(make("rect", {class: "bar", x: n(at), y: n(one.y + one.height - 4), width: n(share * (one.width - 8)), height: "3", fill}));
          at += share * (one.width - 8);
        }
      }
      layer.append(item);
    }
    for (const one of found.lines) {
      const [[x0, y0], [, y1], [x2, y2], [, y3]] = one.points, mid = (y1 + y2) / 2;
      const path = make("path", {class: one.back ? "edge back" : "edge", d: `M${n(x0)} ${n(y0)}V${n(y1)}C${n(x0)} ${n(mid)} ${n(x2)} ${n(mid)} ${n(x2)} ${n(y2)}V${n(y3)}`,
        ...(one.head ? {"marker-end": `url(#${root.id}-head)`} : {})});
      path.append(make("title", {}, one.title));
      layer.append(path);
      const key = `${n(x0)} ${n(y0)}`;
      if (one.label && !said.has(key)) {
        said.add(key);
        labels.push(make("text", {class: "flow", x: n(x0), y: n(y0 + 15), "text-anchor": "middle"}, one.label));
      }
    }
    layer.append(...labels);
    layer.setAttribute("class", "scene");
    svg.querySelector(".scene").replaceWith(layer);
    return found;
  }

  let view = null;
  const show = () => svg.setAttribute("viewBox", view.map(n).join(" "));
  const size = () => svg.getBoundingClientRect();
  function fit(found) {
    const room = size(), width = found.width + 24, height = found.height + 24;
    // Readable first: what is too tall is scrolled by dragging, not made smaller than half its size.
    const scale = Math.min(2, Math.max(width / room.width, Math.min(height / room.height, 1)));
    const wide = Math.max(room.width * scale, 1), high = Math.max(room.height * scale, 1);
    view = [(found.width - wide) / 2, height > high ? -12 : (found.height - high) / 2, wide, high];
    show();
  }
  function zoom(factor, x, y) {
    const room = size(), fx = x === undefined ? 0.5 : (x - room.left) / room.width, fy = y === undefined ? 0.5 : (y - room.top) / room.height;
    const next = Math.min(Math.max(view[2] * factor, 40), 1e6) / view[2];
    view = [view[0] + view[2] * fx * (1 - next), view[1] + view[3] * fy * (1 - next), view[2] * next, view[3] * next];
    show();
  }
  function tell(number) {
    const list = document.createElement("dl"), head = document.createElement("h3");
    head.textContent = boxes[number].name;
    for (const [key, text] of boxes[number].facts) {
      const dt = document.createElement("dt"), dd = document.createElement("dd");
      dt.textContent = key; dd.textContent = text;
      list.append(dt, dd);
    }
    facts.replaceChildren(head, list);
  }
  function toggle(number) {
    const before = svg.querySelector(`[data-box="${number}"] rect`);
    const x = +before.getAttribute("x"), y = +before.getAttribute("y");
    if (opened.has(number)) opened.delete(number); else opened.add(number);
    const found = draw(), now = found.placed.find(one => one.number === number);
    // The box stays where the pointer is.
    view = [view[0] + now.x - x, view[1] + now.y - y, view[2], view[3]];
    show();
    const item = svg.querySelector(`[data-box="${number}"]`);
    if (item) item.focus({preventScroll: true});
  }
  function press(item) {
    const number = +item.getAttribute("data-box");
    tell(number);
    if (number && has(groups, number)) toggle(number);
  }

  let drag = null;
  svg.addEventListener("pointerdown", event => { drag = {x: event.clientX, y: event.clientY, view: view.slice(), moved: false}; });
  svg.addEventListener("pointermove", event => {
    if (!drag || !(event.buttons & 1)) { drag = event.buttons & 1 ? drag : null; return; }
    const room = size(), dx = event.clientX - drag.x, dy = event.clientY - drag.y;
    if (Math.abs(dx) + Math.abs(dy) > 3) drag.moved = true;
    view = [drag.view[0] - dx * view[2] / room.width, drag.view[1] - dy * view[3] / room.height, view[2], view[3]];
    show();
  });
  svg.addEventListener("click", event => {
    const item = event.target.closest("[data-box]"), moved = drag && drag.moved;
    drag = null;
    if (item && !moved) press(item);
  });
  svg.addEventListener("keydown", event => {
    const item = event.target.closest("[data-box]");
    if (item && (event.key === "Enter" || event.key === " ")) { event.preventDefault(); press(item); }
  });
  svg.addEventListener("wheel", event => {
    // On a page with more than the drawing the wheel scrolls the page.
    if (!data.alone && !event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    zoom(event.deltaY > 0 ? 1.15 : 1 / 1.15, event.clientX, event.clientY);
  }, {passive: false});
  const depth = number => { let at = 0; while ((number = boxes[number].parent) >= 0) at++; return at; };
  const actions = {
    "in": () => zoom(1 / 1.3), out: () => zoom(1.3), fit: () => fit(draw()),
    unfold: () => { for (const one of scene().placed) if (!one.open && has(groups, one.number)) opened.add(one.number); fit(draw()); },
    fold: () => {
      const deepest = Math.max(0, ...[...opened].map(depth));
      for (const one of [...opened]) if (one && depth(one) === deepest) opened.delete(one);
      fit(draw());
    },
  };
  let last = size();
  new ResizeObserver(() => {
    const room = size();
    if (!view || !room.width || !last.width) { last = room; return; }
    const scale = view[2] / last.width;
    view = [view[0], view[1], room.width * scale, room.height * scale];
    last = room;
    show();
  }).observe(svg);
  root.querySelectorAll("[data-act]").forEach(button => button.addEventListener("click", () => actions[button.dataset.act]()));
  root.classList.add("live");
  svg.style.maxWidth = "none";
  fit(draw());
  last = size();
}
document.querySelectorAll(".irscope-graph").forEach(irscopeGraph);
