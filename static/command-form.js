/* Forms that command: a field is said to be wrong where the server says so beside it, and a trial is said to be under
   way while the last one stands. */

function isInvalid(field) {
  const said = field
    .getAttribute("aria-describedby")
    .split(/\s+/)
    .map((id) => document.getElementById(id));
  return said.some((one) => one?.matches(".field-error") && one.textContent.trim());
}

function markInvalidFields() {
  for (const field of document.querySelectorAll("#command-form [aria-describedby]")) {
    if (isInvalid(field)) field.setAttribute("aria-invalid", "true");
    else field.removeAttribute("aria-invalid");
  }
}

/* The next one may begin before the last one is told to have ended: they are counted. */
let pendingRequests = 0;

function count(change) {
  return (event) => {
    if (event.target.id !== "command-form") return;
    pendingRequests = Math.max(0, pendingRequests + change);
    const trial = document.getElementById("preview");
    if (pendingRequests) trial?.setAttribute("aria-busy", "true");
    else trial?.removeAttribute("aria-busy");
  };
}

document.addEventListener("htmx:before:request", count(1));
document.addEventListener("htmx:finally:request", count(-1));
document.addEventListener("htmx:after:swap", markInvalidFields);
markInvalidFields();
