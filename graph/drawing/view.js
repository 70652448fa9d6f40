(() => {
  const make = (name, text, into) => { const it = document.createElement(name); it.textContent = text; into.append(it); return it; };

  // A line of its own instead of the browser's tooltip, which comes late and cannot be styled.
  function tips(root) {
    const tip = make("div", "", root);
    tip.className = "plait-tip";
    tip.hidden = true;
    for (const part of [root, ...[...root.querySelectorAll("template")].map(each => each.content)]) {
      for (const title of part.querySelectorAll("svg title")) {
        title.parentNode.setAttribute("aria-label", title.textContent);
        title.remove();
      }
    }
    root.addEventListener("mousemove", event => {
      const on = event.target.closest && event.target.closest("svg [aria-label]");
      tip.hidden = !on || on.matches("svg");
      if (tip.hidden) return;
      tip.textContent = on.getAttribute("aria-label");
      const box = tip.getBoundingClientRect();
      tip.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - box.width - 8)) + "px";
      tip.style.top = (event.clientY + 18 + box.height > innerHeight ? event.clientY - box.height - 10 : event.clientY + 18) + "px";
    });
    root.addEventListener("mouseleave", () => { tip.hidden = true; });
  }

  function light(svg, chosen) {
    for (const each of svg.querySelectorAll(".plait-on")) each.classList.remove("plait-on");
    svg.classList.toggle("plait-dim", Boolean(chosen));
    for (const each of chosen || []) each.classList.add("plait-on");
  }

  function neighbours(svg) {
    let held = null;
    svg.addEventListener("mouseover", event => {
      const box = event.target.closest(".plait-box");
      if (held || !box) { if (!held) light(svg, null); return; }
      const near = [box];
      for (const edge of svg.querySelectorAll(`.plait-edge[data-s="${box.dataset.n}"], .plait-edge[data-t="${box.dataset.n}"]`)) {
        near.push(edge);
        const other = edge.dataset.s === box.dataset.n ? edge.dataset.t : edge.dataset.s;
        near.push(...svg.querySelectorAll(`.plait-box[data-n="${other}"]`));
      }
      light(svg, near);
    });
    svg.addEventListener("mouseleave", () => { if (!held) light(svg, null); });
    for (const key of svg.querySelectorAll(".plait-key")) {
      const choose = () => {
        held = held === key ? null : key;
        light(svg, held && [...svg.querySelectorAll(`.plait-box[data-k~="${key.dataset.k}"], .plait-bar[data-k="${key.dataset.k}"]`)]);
      };
      key.setAttribute("tabindex", "0");
      key.setAttribute("role", "button");
      key.addEventListener("click", choose);
      key.addEventListener("keydown", event => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); choose(); } });
    }
  }

  // The picture of a graph: its size on the page, in a box that scrolls.
  function sized(svg) {
    const scroll = svg.parentNode;
    const width = svg.viewBox.baseVal.width, height = svg.viewBox.baseVal.height;
    let scale = 1;
    const set = (to, x, y) => {
      const before = scale;
      scale = Math.max(0.05, Math.min(8, to));
      const left = (scroll.scrollLeft + x) * scale / before - x, top = (scroll.scrollTop + y) * scale / before - y;
      svg.style.width = width * scale + "px";
      svg.style.height = height * scale + "px";
      scroll.scrollLeft = left;
      scroll.scrollTop = top;
    };
    const head = svg.querySelector(".plait-head"), place = head.getAttribute("transform");
    scroll.addEventListener("scroll", () => { if (svg.isConnected) head.setAttribute("transform", `translate(${scroll.scrollLeft / scale} 0) ${place}`); });
    const middle = to => set(to, scroll.clientWidth / 2, scroll.clientHeight / 2);
    const buttons = [["−", "smaller", () => middle(scale / 1.3)], ["+", "larger", () => middle(scale * 1.3)],
      ["fit", "the whole width", () => set(Math.min(1, scroll.clientWidth / width), 0, 0)], ["1:1", "natural size", () => set(1, 0, 0)]];
    const first = svg.querySelector(".plait-box");
    if (width > scroll.clientWidth && first) {
      set(Math.max(0.7, scroll.clientWidth / width), 0, 0);
      const box = first.getBoundingClientRect(), area = scroll.getBoundingClientRect();
      scroll.scrollLeft = box.left - area.left + box.width / 2 - area.width / 2;
    }
    wheel(svg, scroll, (factor, x, y) => set(scale * factor, x, y), (dx, dy) => { scroll.scrollLeft -= dx; scroll.scrollTop -= dy; });
    return buttons;
  }

  function wheel(svg, area, zoom, pan) {
    svg.addEventListener("wheel", event => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      const at = area.getBoundingClientRect();
      zoom(event.deltaY < 0 ? 1.15 : 1 / 1.15, event.clientX - at.left, event.clientY - at.top);
    }, { passive: false });
    let from = null;
    svg.addEventListener("pointerdown", event => { if (!event.target.closest(".plait-key")) from = event; });
    addEventListener("pointermove", event => { if (from) { pan(event.clientX - from.clientX, event.clientY - from.clientY); from = event; } });
    addEventListener("pointerup", () => { from = null; });
  }

  // A timeline: the part of the time that its lanes show. Texts and ticks keep their size.
  function timed(svg) {
    const lanes = svg.querySelector(".plait-lanes");
    const left = Number(lanes.dataset.left), width = Number(lanes.dataset.width), span = Number(lanes.dataset.span);
    let from = 0, shown = width;
    const texts = [...svg.querySelectorAll(".plait-inside")], ticks = svg.querySelector(".plait-ticks");
    const word = seconds => seconds >= 1 ? +seconds.toPrecision(4) + " s" : seconds >= 1e-3 ? +(seconds * 1e3).toPrecision(4) + " ms" : +(seconds * 1e6).toPrecision(4) + " µs";
    const tickText = ticks.querySelector("text"), tickLine = ticks.querySelector("line");
    const draw = () => {
      shown = Math.max(width / 5000, Math.min(width, shown));
      from = Math.max(0, Math.min(width - shown, from));
      lanes.setAttribute("viewBox", `${from} 0 ${shown} ${lanes.dataset.height}`);
      const factor = width / shown;
      for (const text of texts) {
        const start = Math.max(0, (Number(text.dataset.x) - from) * factor), end = Math.min(width, (Number(text.dataset.x) + Number(text.dataset.w) - from) * factor);
        text.setAttribute("x", left + start + 4);
        text.setAttribute("visibility", end - start > Number(text.dataset.need) + 8 ? "visible" : "hidden");
      }
      const seconds = span * shown / width, begin = span * from / width;
      const raw = seconds / 6, power = 10 ** Math.floor(Math.log10(raw));
      const step = [1, 2, 5, 10].map(each => each * power).find(each => each >= raw);
      ticks.replaceChildren();
      for (let k = Math.ceil(begin / step); k * step <= begin + seconds + step / 1e6; k++) {
        const x = left + (k * step - begin) / seconds * width, line = tickLine.cloneNode(), text = tickText.cloneNode();
        line.setAttribute("x1", x); line.setAttribute("x2", x);
        text.setAttribute("x", x); text.textContent = word(k * step) === "0 µs" ? "0" : word(k * step);
        ticks.append(line, text);
      }
    };
    const scale = () => svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
    const zoom = (factor, x) => {
      const at = x === undefined ? from + shown / 2 : from + Math.max(0, Math.min(1, (x / scale() - left) / width)) * shown;
      const part = (at - from) / shown;
      shown = Math.max(width / 5000, Math.min(width, shown / factor));
      from = at - part * shown;
      draw();
    };
    wheel(svg, svg.parentNode, (factor, x) => zoom(factor, x), dx => { from -= dx / scale() * shown / width; draw(); });
    return [["−", "more of the time", () => zoom(1 / 1.6)], ["+", "less of the time, larger", () => zoom(1.6)], ["all", "the whole run", () => { shown = width; from = 0; draw(); }]];
  }

  function open(root) {
    root.dataset.ready = "yes";
    const known = new Map();
    for (const part of root.querySelectorAll(".plait-part")) {
      const tools = document.createElement("div"), other = part.querySelector("template");
      tools.className = "plait-tools";
      part.prepend(tools);
      let words = [other && other.dataset.word, "every item"];
      const start = () => {
        const svg = part.querySelector(".plait-scroll svg");
        if (!known.has(svg)) {
          known.set(svg, svg.querySelector(".plait-lanes") ? timed(svg) : sized(svg));
          neighbours(svg);
        }
        tools.replaceChildren();
        const swap = [words[0], "the other picture of this graph", () => {
          const next = other.content.querySelector("svg");
          svg.replaceWith(next);
          other.content.append(svg);
          words = words.reverse();
          start();
        }];
        for (const [text, title, act] of other ? [swap, ...known.get(svg)] : known.get(svg)) {
          const button = make("button", text, tools);
          button.type = "button";
          button.title = title;
          button.addEventListener("click", act);
        }
      };
      start();
    }
    tips(root);
  }

  for (const root of document.querySelectorAll(".plait-view:not([data-ready])")) open(root);
})();
