// On the search page: of each formula in an excerpt its symbols once, not also its TeX and its layout.
const pageText = Search.htmlToText;
Search.htmlToText = (html, anchor) => {
  const page = new DOMParser().parseFromString(html, "text/html");
  page.querySelectorAll(".katex-html, annotation").forEach((copy) => copy.remove());
  return pageText(page.documentElement.outerHTML, anchor);
};
