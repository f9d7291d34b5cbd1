// Click a heading to sort its column. `document$` is Material's: it fires for every page that is shown.
document$.subscribe(() => {
  for (const table of document.querySelectorAll("article table:not([class])")) new Tablesort(table);
});
