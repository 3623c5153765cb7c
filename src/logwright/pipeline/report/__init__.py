"""The report: one HTML page that shows what is in the tables. `page.write_report` writes it."""
