-- A person's own configuration, as short as the README says. Started by test_picture.py.
vim.opt.runtimepath:append(os.getenv("OUTPOST_PLUGIN"))
vim.cmd("filetype on | syntax on | colorscheme habamax")
vim.opt.termguicolors, vim.opt.number, vim.opt.signcolumn, vim.opt.swapfile = true, true, "yes", false
vim.opt.laststatus, vim.opt.shortmess = 3, vim.o.shortmess .. "I"
vim.opt.statusline = " %t %m %=%{%v:lua.require'outpost.state'.statusline()%} "
vim.lsp.config("outpost", { cmd = { os.getenv("OUTPOST_PYTHON"), "-m", "outpost_lsp", "serve" } })
vim.lsp.enable("outpost")
vim.diagnostic.config({ virtual_text = true })
