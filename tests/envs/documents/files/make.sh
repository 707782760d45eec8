#!/usr/bin/env bash
# Makes the documents of this folder again, from report.md, talk.md, rtl.html, rules.ms, berths.roff and ships.csv.
# Debian: apt-get install pandoc ghostscript groff gnumeric weasyprint chromium libreoffice-writer
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
soffice --headless --infilter="HTML (StarWriter)" --convert-to odt --outdir "$work" rtl.html
soffice --headless --convert-to pdf --outdir "$work" "$work/rtl.odt"
mv "$work/rtl.pdf" rtl_libreoffice.pdf
groff -t -Tps berths.roff >"$work/berths.ps"
"${gs[@]}" -sDEVICE=pdfwrite -sOutputFile=berths.pdf "$work/berths.ps"
