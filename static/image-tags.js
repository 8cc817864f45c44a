/* One tag for all containers of a repository: it is put into their fields, where everybody sees it, and nowhere else.

   The field of the tag has no name, so it is never sent: what stands in the fields of the containers is what is meant. */

const card = document.querySelector("[data-image-tags]");
if (card) card.hidden = false;

card?.addEventListener("input", (event) => {
  const { repository } = event.target.dataset;
  const tag = event.target.value.trim();
  for (const field of document.querySelectorAll("[data-current-repository]")) {
    if (field.dataset.currentRepository !== repository) continue;
    // A digest is written with an @ of its own.
    field.value = tag ? `${repository}${tag.startsWith("@") ? "" : ":"}${tag}` : field.defaultValue;
  }
});
