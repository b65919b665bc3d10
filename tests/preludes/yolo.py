"""What docs/yolo.md assumes: ultralytics, for which a stand-in is given."""

from contrib import stand_in

stand_ins = {"ultralytics": stand_in}
