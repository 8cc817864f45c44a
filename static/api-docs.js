// The page of the REST API: Swagger UI for our OpenAPI description, with requests in the session of the reader.
"use strict";

const place = document.getElementById("docs");

SwaggerUIBundle({
  url: place.dataset.schema,
  dom_id: "#docs",
  deepLinking: true,
  docExpansion: "list",
  defaultModelsExpandDepth: 0,
  displayOperationId: true,
  filter: true,
  syntaxHighlight: { activated: false },
  validatorUrl: null,
  requestInterceptor(request) {
    if (request.method && request.method !== "GET") {
      request.headers["X-CSRFToken"] = place.dataset.csrf;
    }
    return request;
  },
});
