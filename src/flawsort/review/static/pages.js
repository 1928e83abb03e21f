// The pages of a run, in the order of their tabs and of the keys Alt + 1, 2 and so on. To add a page,
// write its script and put its class here.
//
// A page is a class with
//   static place, title   its address after the #, and the text of its tab
//   static rail           whether the list of groups is shown beside it
//   static filters        whether it shows what the filters find; optional
//   static keys           its own keys for the help, as [key, description]; optional
//   constructor(shell)    shell.go(place, parts) opens a page; call shell.changed() after showing something else
//   node                  its element
//   draw()                shows the run and its current groups
// and optionally
//   open(parts)           called with the parts of an address before draw(): texts, none if the address has none
//   parts()               the parts of its address: what it shows
//   listed()              the entry marked in the list of groups: an id, "all" or null
//   choose(id)            called on a click in the list; without it, the click opens the groups page
//   show(id)              goes to a group that an edit has made
//   group(), row()        the group id and the image that keys apply to, or null
//   shows(row)            whether an image is among those that it shows; none is by default
//   key(event)            handles a key of the page, and returns whether it did
//   focus()               takes the keyboard focus
//   away()                called when another page takes its place

import { AccuracyPage } from "./accuracypage.js";
import { ComparePage } from "./comparepage.js";
import { ExportPage } from "./exportpage.js";
import { GroupsPage } from "./groupspage.js";
import { HistoryPage } from "./historypage.js";
import { MapPage } from "./mappage.js";
import { NewPage } from "./newpage.js";
import { QueuePage } from "./queuepage.js";
import { TreePage } from "./treepage.js";

export const PAGES = [GroupsPage, MapPage, TreePage, QueuePage, ComparePage, AccuracyPage, NewPage, ExportPage, HistoryPage];
