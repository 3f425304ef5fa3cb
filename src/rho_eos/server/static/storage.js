/** What the browser keeps for us. Storage may be switched off; the page works without. */

/** `open` gives the storage: asking for it may already be refused. */
export function recall(open, name) {
  try {
    return open().getItem(name);
  } catch {
    return null;
  }
}

/** An empty value is forgotten. */
export function remember(open, name, value) {
  try {
    if (value) open().setItem(name, value);
    else open().removeItem(name);
  } catch {
    // as above
  }
}
