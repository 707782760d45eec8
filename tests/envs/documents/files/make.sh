#!/usr/bin/env bash
# Makes the documents of this folder again, from report.md, talk.md, rich.html, rtl.html, prices.py,
# rules.ms, berths.roff and ships.csv.
# Debian: apt-get install pandoc ghostscript groff gnumeric weasyprint chromium libreoffice-writer libreoffice-calc
set -euo pipefail
cd "$(dirname "$0")"
for format in docx html epub ipynb; do pandoc report.md --standalone --output "pandoc.$format"; done
sed -i "s/[ \t]*$//" pandoc.html
pandoc talk.md --standalone --output pandoc.pptx
weasyprint --quiet pandoc.html weasyprint.pdf
chromium --headless --no-pdf-header-footer --print-to-pdf=chromium.pdf pandoc.html
ssconvert ships.csv gnumeric.xlsx
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
groff -ms -Tps rules.ms >"$work/rules.ps"
gs=(gs -q -dNOPAUSE -dBATCH)
"${gs[@]}" -sDEVICE=pdfwrite -sOutputFile=groff.pdf "$work/rules.ps"
"${gs[@]}" -sDEVICE=pdfwrite -sOwnerPassword=owner -sUserPassword=harbour -dEncryptionR=3 \
  -dKeyLength=128 -sOutputFile=locked.pdf "$work/rules.ps"
"${gs[@]}" -sDEVICE=pdfimage8 -r60 -sOutputFile=scan.pdf "$work/rules.ps"
chromium --headless --no-pdf-header-footer --print-to-pdf=rtl_chromium.pdf rtl.html
office=(soffice --headless --outdir "$work")
"${office[@]}" --infilter="HTML (StarWriter)" --convert-to odt rtl.html rich.html
"${office[@]}" --convert-to pdf "$work/rtl.odt"
mv "$work/rtl.pdf" rtl_libreoffice.pdf
"${office[@]}" --convert-to rtf "$work/rich.odt"
sed "s/[ \t]*$//; \$a\\" "$work/rich.rtf" >libreoffice.rtf
python prices.py "$work/prices.xlsx" # an interpreter with openpyxl
for format in xls ods; do
  "${office[@]}" --convert-to "$format" "$work/prices.xlsx"
  mv "$work/prices.$format" "libreoffice.$format"
done
groff -t -Tps berths.roff >"$work/berths.ps"
"${gs[@]}" -sDEVICE=pdfwrite -sOutputFile=berths.pdf "$work/berths.ps"
