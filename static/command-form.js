/* Command forms: marks a field as invalid while the server shows an error beside it, and the preview as busy while the
   server computes the next one. */

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

/* A request may begin before the previous one has ended, so they are counted. */
let pendingRequests = 0;

function count(change) {
  return (event) => {
    if (event.target.id !== "command-form") return;
    pendingRequests = Math.max(0, pendingRequests + change);
    const preview = document.getElementById("preview");
    if (pendingRequests) preview?.setAttribute("aria-busy", "true");
    else preview?.removeAttribute("aria-busy");
  };
}

document.addEventListener("htmx:before:request", count(1));
document.addEventListener("htmx:finally:request", count(-1));
document.addEventListener("htmx:after:swap", markInvalidFields);
markInvalidFields();
