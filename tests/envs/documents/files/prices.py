"""Write the workbook from which LibreOffice makes libreoffice.xls and libreoffice.ods."""

import datetime
import sys

import openpyxl

book = openpyxl.Workbook()
prices = book.worksheets[0]
prices.title = "Prices"
when = datetime.datetime(2024, 1, 31, 6, 5)
duration = datetime.timedelta(hours=30, minutes=5)
prices.append([])
prices.append([None, "item", "n", "rate", "price", "date", "when", "dur", "ok", "f"])
prices.append([None, "bolt", 3, 0.25, 1234.5, when.date(), when, duration, True, "=C3*2"])
for cell, shown in (("D3", "0%"), ("E3", '"$"#,##0.00'), ("H3", "[h]:mm")):
    prices[cell].number_format = shown
prices["B4"] = "=1/0"
prices["B5"].hyperlink = "https://a.example/"
prices["B5"] = "link"
prices.row_dimensions[5].hidden = True
prices["B7"] = "merged"
prices.merge_cells("B7:C8")
secret = book.create_sheet("Secret")
secret.append(["x"])
secret.sheet_state = "hidden"
book.create_sheet("Empty")
book.save(sys.argv[1])
