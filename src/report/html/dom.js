"use strict";
// Makes elements. Everything that comes from the data becomes a text node or the value of a harmless attribute: nothing
// in this page parses HTML (and the page's policy forbids it).

function make(tag, properties, ...children) { return fill(document.createElement(tag), properties, children); }

function makeSvg(tag, properties, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), properties, children);
}

// Properties: "on" with an object of listeners; the others are attributes, left out if null, undefined or false.
function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties || {})) {
    if (name === "on")
      for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    else if (value !== null && value !== undefined && value !== false)
      element.setAttribute(name, value === true ? "" : value);
  }
  append(element, children);
  return element;
}

function append(element, children) {
  for (const child of children) {
    if (child === null || child === undefined || child === false || child === "") continue;
    if (Array.isArray(child)) append(element, child);
    else element.append(child);
  }
}

function replace(element, ...children) {
  element.replaceChildren();
  append(element, children);
}

const byId = id => document.getElementById(id);

// The text, with what the search looks for marked.
function marked(whole) {
  if (!search.words || !whole) return whole;
  const parts = [];
  const small = whole.toLowerCase();
  let at = 0;
  // A few letters change their length in lower case; such a text is not marked.
  if (small.length !== whole.length) return whole;
  for (let hit = small.indexOf(search.words); hit >= 0; hit = small.indexOf(search.words, at)) {
    if (hit > at) parts.push(whole.slice(at, hit));
    at = hit + search.words.length;
    parts.push(make("mark", {}, whole.slice(hit, at)));
  }
  parts.push(whole.slice(at));
  return parts;
}

const frameKind = frame => report.frame_kinds[report.frames[frame][FRAME.KIND]];

// Moves the focus among the elements of a container that match, all of which but one have tabindex -1.
function moveFocus(container, selector, to) {
  const all = [...container.querySelectorAll(selector)].filter(e => e.getClientRects().length);
  const at = all.indexOf(document.activeElement);
  const next = all[Math.max(0, Math.min(all.length - 1, to(at, all.length)))];
  if (next) focusOnly(container, selector, next);
}

function focusOnly(container, selector, element) {
  for (const other of container.querySelectorAll(`${selector}[tabindex="0"]`)) other.tabIndex = -1;
  element.tabIndex = 0;
  element.focus();
}
