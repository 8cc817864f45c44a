/* One tag for all containers of a repository: writes the tag into their fields.

   The field of the tag has no name, so it is never submitted: only the fields of the containers count. */

const card = document.querySelector("[data-image-tags]");
if (card) card.hidden = false;

card?.addEventListener("input", (event) => {
  const { repository } = event.target.dataset;
  const tag = event.target.value.trim();
  for (const field of document.querySelectorAll("[data-current-repository]")) {
    if (field.dataset.currentRepository !== repository) continue;
    // A digest brings its own @.
    field.value = tag ? `${repository}${tag.startsWith("@") ? "" : ":"}${tag}` : field.defaultValue;
  }
});
